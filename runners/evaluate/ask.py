"""The process that asks: lm-eval on one task and one server. Run as a file by the Python that has lm-eval:

    PYTHON -P ask.py ORDER.json

The order names ``task_folder``, ``task``, ``model_args`` of lm-eval's local-completions, ``limit``, and where
``samples`` (JSON lines: index, question, target, response) and ``results`` go. Imports nothing of the project, since
that Python may be another one. ``python -m lm_eval run`` does the same, but reads the thousands of task files that come
with it at every start, which costs the machine several seconds while other slots are measured. Exit status 1 when a
request failed or anything else went wrong: the last line of the traceback says what; 3 when lm-eval is not installed.
"""

import importlib
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

NOT_INSTALLED = 3


def ask(order: dict[str, Any]) -> dict[str, Any]:
    """Ask every question and return lm-eval's results. Raises what a failed request raises."""
    evaluator = importlib.import_module("lm_eval.evaluator")
    tasks = importlib.import_module("lm_eval.tasks")
    results: dict[str, Any] = evaluator.simple_evaluate(
        model="local-completions",
        model_args=order["model_args"],
        tasks=[order["task"]],
        batch_size=1,
        limit=order["limit"],
        log_samples=True,
        task_manager=tasks.TaskManager(include_path=order["task_folder"], include_defaults=False),
    )
    return results


def samples_of(results: dict[str, Any], task: str) -> tuple[list[dict[str, Any]], int]:
    """Return one sample for each question in the order of the file, and how many of them got no answer."""
    nothing = importlib.import_module("lm_eval.models.api_models").LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER
    every = results["samples"][task]
    once = [sample for sample in every if sample["filter"] == every[0]["filter"]]
    once.sort(key=lambda sample: sample["doc_id"])
    found = [
        {
            "index": sample["doc_id"],
            "question": sample["doc"]["question"],
            "target": sample["target"],
            "response": sample["resps"][0][0],
        }
        for sample in once
    ]
    return found, sum(sample["response"] == nothing for sample in found)


def main(argv: list[str]) -> int:
    """Carry out the order and return the exit status."""
    order = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    try:
        version = importlib.metadata.version("lm-eval")
    except importlib.metadata.PackageNotFoundError:
        print("lm-eval is not installed", file=sys.stderr)
        return NOT_INSTALLED
    results = ask(order)
    samples, failed = samples_of(results, order["task"])
    with Path(order["samples"]).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(sample, ensure_ascii=True) + "\n" for sample in samples)
    kept = ("results", "configs", "versions", "n-shot", "n-samples", "config", "task_hashes")
    summary = {"lm_eval_version": version, "n": len(samples), "failed": failed}
    summary |= {key: results[key] for key in kept if key in results}
    # Written last: that it is there says that everything is.
    Path(order["results"]).write_text(json.dumps(summary, indent=1, default=str) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

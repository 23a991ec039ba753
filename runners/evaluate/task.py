"""The task that lm-eval runs: its stock gsm8k, version 3.0, but with local files and the first shots, always the same.

The stock task draws its examples by a seed (lm-eval 0.4.13, ``lm_eval/tasks/gsm8k/gsm8k.yaml``); here the first five of
the file are used, so that every build gets the same prompt, byte for byte.
"""

import json
from pathlib import Path
from typing import Any

from runners.evaluate.questions import SHOTS, Questions

NAME = "backslide_gsm8k"
FILE_NAME = "gsm8k-task.yaml"
STRICT, FLEXIBLE = "strict-match", "flexible-extract"


def task_of(questions: Questions) -> dict[str, Any]:
    """Return the task's configuration."""
    return {
        "task": NAME,
        "dataset_path": questions.form,
        "dataset_kwargs": {"data_files": {"train": str(questions.shots), "test": str(questions.file)}},
        "output_type": "generate_until",
        "training_split": "train",
        "fewshot_split": "train",
        "test_split": "test",
        "fewshot_config": {"sampler": "first_n"},
        "num_fewshot": SHOTS,
        "doc_to_text": "Question: {{question}}\nAnswer:",
        "doc_to_target": "{{answer}}",
        "metric_list": [
            {
                "metric": "exact_match",
                "aggregation": "mean",
                "higher_is_better": True,
                "ignore_case": True,
                "ignore_punctuation": False,
                "regexes_to_ignore": [",", "\\$", "(?s).*#### ", "\\.$"],
            }
        ],
        "generation_kwargs": {
            "until": ["Question:", "</s>", "<|im_end|>"],
            "do_sample": False,
            "temperature": 0.0,
        },
        "repeats": 1,
        "filter_list": [
            _filter(STRICT, {"regex_pattern": "#### (\\-?[0-9\\.\\,]+)"}),
            _filter(FLEXIBLE, {"group_select": -1, "regex_pattern": "(-?[$0-9.,]{2,})|(-?[0-9]+)"}),
        ],
        "metadata": {"version": 3.0},
    }


def write_task(questions: Questions, folder: Path) -> Path:
    """Write the task into ``folder`` and return the file: JSON, which every reader of YAML takes."""
    path = folder / FILE_NAME
    path.write_text(json.dumps(task_of(questions), indent=2) + "\n", encoding="utf-8")
    return path


def _filter(name: str, how: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "filter": [{"function": "regex", **how}, {"function": "take_first"}]}

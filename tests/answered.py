"""Launches that were asked, as a runner hands them in: answers in, package out."""

import json

from service.contract import canonical
from service.contract.failures import Failure, FailureClass
from service.contract.upload import Scored, Unscored
from tests.workshop import Package, package

SAMPLES = "gsm8k-samples.jsonl"
LABEL = "gsm8k-like (simulated)"


def samples(marks: str) -> bytes:
    """Answers to so many questions: right where there is a 1."""
    lines = [
        {
            "index": i,
            "question": f"{i}?",
            "target": f"So {i}.\n#### {i}",
            "response": f" #### {i if right == '1' else -1}",
        }
        for i, right in enumerate(marks)
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def asked(marks: str, *, step_ms: float = 20.0, good: int = 3, **changes: object) -> Package:
    """A launch with the answers that ``marks`` stand for; fields of the report can be replaced."""
    data = samples(marks)
    report: dict[str, object] = {
        "label": LABEL,
        "questions": "1" * 64,
        "shots": "2" * 64,
        "n": len(marks),
        "samples": canonical.digest_bytes(data),
        "lm_eval_version": "0.4.13",
        "duration_s": 4.5,
    }
    return with_evaluation(package(step_ms, good=good), Scored.model_validate(report | changes), {SAMPLES: data})


def unscored(message: str = "12 requests failed") -> Package:
    """A launch that has no score."""
    failure = Failure(failure_class=FailureClass.EVALUATION, step="evaluate", message=message)
    return with_evaluation(package(), Unscored(failure=failure), {})


def with_evaluation(made: Package, said: Scored | Unscored, files: dict[str, bytes]) -> Package:
    launch = made.body.launch.model_copy(update={"evaluation": said})
    return Package({**made.files, **files}, made.body.model_copy(update={"launch": launch}))

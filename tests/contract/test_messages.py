"""The wire stays as it is: golden.json holds every message as an older peer sends it. A change that turns one of these
red needs a new protocol version, unless it only adds a field with a default: then add the field there."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from service.contract import PROTOCOL_VERSION, lease, requests, upload
from service.contract.builds import Wire

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden.json").read_text())
NESTED = {"ArtifactRef", "StepTiming", "Identity", "ServerCounters", "RepetitionReport", "LaunchReport", "Completed"}
NESTED |= {"Failed", "EvaluationOrder", "Scored", "Unscored"}


def message_class(name: str) -> type[BaseModel]:
    for module in (lease, upload, requests):
        found = getattr(module, name.split()[0], None)
        if found is not None:
            return TypeAdapter(type[BaseModel]).validate_python(found)
    raise LookupError(name)


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_golden_message_is_read_and_written_back_word_by_word(name: str) -> None:
    text = json.dumps(GOLDEN[name])
    message = message_class(name).model_validate_json(text)
    assert json.loads(message.model_dump_json()) == GOLDEN[name]


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_message_with_a_field_that_nobody_knows_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        message_class(name).model_validate({**GOLDEN[name], "surely_unknown": 1})


def test_every_message_is_in_the_golden_file() -> None:
    own = {
        name
        for module in (lease, upload, requests)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, Wire) and kind.__module__ == module.__name__
    }
    assert own - NESTED == {name.split()[0] for name in GOLDEN}


def test_every_message_that_begins_something_carries_the_protocol_version() -> None:
    carrying = {name for name, body in GOLDEN.items() if body.get("protocol_version") == PROTOCOL_VERSION}
    assert carrying == {name for name in GOLDEN if name.startswith("Result ")} | {
        *("EnrolRequest", "Heartbeat", "LeaseRequest", "Lease"),
    }

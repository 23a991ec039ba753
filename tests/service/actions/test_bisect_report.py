"""The report of a bisect: what somebody who was not there needs, and nothing that is not so."""

import json
import re

import pytest

from service.actions import bisect_report
from service.contract.requests import BisectRequest
from service.domain import report
from service.domain.bisect import Answer
from tests import bisected, measured


def written(answer: Answer | None = Answer.CONFIRMED, **changes: object) -> str:
    view = bisected.view(answer, **changes)
    made = bisected.launches()
    return report.write(bisect_report.compose(view, measured.cell(), made, "http://controller:8400"))


def section(text: str, title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no section {title}:\n{text}"
    return found.group(1)


def test_it_begins_with_a_title_the_marks_and_the_answer() -> None:
    lines = [line for line in written().splitlines() if line]
    assert lines[0].startswith("# Performance: TPOT p50 is 1.47 times as high in v0.19.0 as in v0.18.1")
    assert lines[1] == "> [!WARNING]"
    assert "SIMULATED BUILDS" in lines[2]
    assert any("TIME COMPRESSED 4x" in line for line in lines[3:6])
    assert any(line.startswith("**v0.19.0 is the first bad version") for line in lines[5:8])


def test_the_size_is_said_to_come_from_the_confirmation_whose_launches_it_lists_in_order() -> None:
    text = written()
    proof = section(text, "Confirmation")
    assert "from these launches alone" in proof
    assert re.findall(r"`(v0\.\d+\.\d)`", proof) == ["v0.18.1", "v0.19.0", "v0.19.0", "v0.18.1"] * 2
    assert re.findall(r"`(lau_\w+)`", proof) == [one.id for one in bisected.launches()[7:]]


def test_the_table_has_every_version_with_its_neighbours_marked_and_the_broken_one_named() -> None:
    rows = [line for line in section(written(), "Versions").splitlines() if line.startswith("| `v")]
    assert [re.findall(r"`([^`]+)`", row)[0] for row in rows] == list(bisected.NAMES)
    assert rows[1].endswith("last good |")
    assert rows[2].endswith("first bad |")
    assert "could not be measured" in rows[6]
    assert "| 4.990 |" in rows[0]
    assert "| – | – | – | – |" in rows[3]


def test_what_a_server_said_cannot_leave_its_place() -> None:
    text = written()
    assert bisected.WHY.replace("|", "\\|") in section(text, "Builds that could not be measured")
    rows = [line for line in text.splitlines() if line.startswith("| `v0.20.2`")]
    assert len(rows) == 1
    assert "<b>" not in rows[0].replace("\\<b\\>", "")


def test_the_request_to_repeat_it_is_one_that_the_controller_takes() -> None:
    repeat = section(written(), "How to repeat it")
    body = json.loads(re.findall(r"```json\n(.*?)```", repeat, re.DOTALL)[0])
    asked = BisectRequest.model_validate(body)
    assert (asked.good, asked.bad, asked.metric, asked.seed) == ("v0.18.0", "v0.24.0", "tpot_p50_ms", 3)
    assert asked.lineup == list(bisected.NAMES)
    assert asked.gsm8k
    assert "backslide bisect start v0.18.0 v0.24.0 --recipe kimi-decode --workload long-prefix" in repeat
    for group in ("builds", "recipes", "workloads"):
        assert f"backslide {group} register bisect.toml" in repeat


def test_every_launch_is_listed_with_the_hashes_of_its_raw_logs() -> None:
    evidence = section(written(), "Evidence")
    for one in bisected.launches():
        assert f"`{one.id}`" in evidence
        for repetition in one.repetitions:
            assert f"`{repetition.raw_log}`" in evidence


def test_it_says_what_is_not_claimed() -> None:
    claims = section(written(), "What is not claimed")
    assert "not its cause" in claims
    assert "v0.19.1, v0.20.0" in claims
    assert "v0.20.2" not in claims
    assert "simulated" in claims


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        (Answer.RANGE, "became worse between v0.18.1 and v0.19.0"),
        (Answer.NOT_REPRODUCED, "no regression between v0.18.0 and v0.24.0 could be reproduced"),
        (Answer.INCONCLUSIVE, "no single step between v0.18.0 and v0.24.0 could be named"),
        (None, "the bisect is searching"),
    ],
)
def test_every_answer_has_its_title(answer: Answer | None, title: str) -> None:
    text = written(answer)
    assert title in text.splitlines()[0]
    if answer in (Answer.NOT_REPRODUCED, Answer.INCONCLUSIVE, None):
        assert "## Confirmation" not in text
        assert "first bad |" not in text


def test_a_report_that_would_be_too_long_for_github_leaves_hashes_out_and_says_so() -> None:
    view = bisected.view()
    many = bisected.launches() * 20
    text = report.write(bisect_report.compose(view, measured.cell(), many, None))
    assert len(text) <= report.MAX_CHARACTERS
    assert "too long" in text

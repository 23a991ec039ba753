"""The demo's bisect with everything real in it: the published truth, moved truths, deaths, pause and cancel."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import profiles
from tests.e2e.demo_process import Demo

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

QUICK = ("--workload", "long-prefix-decode-128", "--no-gsm8k")
"""Launches of a few seconds: where the test is about what happens, not about how precise it is."""
AFTER = ("v0.21.0", "v0.22.0", "v0.22.1", "v0.23.0", "v0.24.0")


def test_the_published_regression_is_found_proven_and_reported(demo: Demo) -> None:
    finding = demo.finish(demo.start("--exit", "--seed", "3"))
    assert finding["answer"] == "confirmed"
    assert (finding["last_good"], finding["first_bad"]) == ("v0.18.1", "v0.19.0")
    low, high = finding["interval"]
    assert high - low <= 0.25  # on a quiet machine 0.10 at most: `make bench-seeds` measures it
    assert low <= finding["ratio"] <= high
    assert 1.35 < finding["truth"] < 1.50
    assert abs(finding["ratio"] / finding["truth"] - 1) < 0.08
    assert finding["confidence"] >= 0.95
    assert finding["skipped"] == []
    assert len(finding["launch_ids"]) == len(set(finding["launch_ids"])) == len(finding["pids"])
    measured = finding["accuracy"]["gsm8k"]
    assert measured["v0.18.1"] is not None
    assert abs(measured["v0.18.1"] - measured["v0.19.0"]) <= 0.1
    report = (demo.folder / "report.md").read_text()
    assert "SIMULATED" in report
    assert finding["sentence"].split()[0] in report
    assert demo.processes() == []


def test_a_step_elsewhere_is_found_there(demo: Demo, tmp_path: Path) -> None:
    moved = profiles.all_alike(tmp_path / "profiles", lambda name: {"step_factor": 1.25 if name in AFTER else 1.0})
    finding = demo.finish(demo.start("--exit", *QUICK, "--profiles", str(moved)))
    assert finding["answer"] == "confirmed"
    assert (finding["last_good"], finding["first_bad"]) == ("v0.20.2", "v0.21.0")
    assert 1.17 < finding["truth"] < 1.32
    assert abs(finding["ratio"] / finding["truth"] - 1) < 0.10


def test_builds_that_crash_at_start_are_skipped_and_named_and_never_blamed(demo: Demo, tmp_path: Path) -> None:
    crash = {"start_failure": {"message": "RuntimeError: HIP error: invalid device function", "after_s": 0.1}}
    moved = profiles.as_published(tmp_path / "profiles", lambda name: crash if name.startswith("v0.20.") else {})
    finding = demo.finish(demo.start("--exit", *QUICK, "--profiles", str(moved)))
    assert finding["answer"] == "confirmed"
    assert (finding["last_good"], finding["first_bad"]) == ("v0.18.1", "v0.19.0")
    assert finding["skipped"]
    assert all(name.startswith("v0.20.") for name in finding["skipped"])
    assert all("HIP error" in why for why in finding["skipped_because"].values())
    assert "HIP error" in (demo.folder / "report.md").read_text()


def test_without_a_change_nothing_is_blamed(demo: Demo, tmp_path: Path) -> None:
    moved = profiles.all_alike(tmp_path / "profiles", lambda _name: {})
    finding = demo.finish(demo.start("--exit", *QUICK, "--profiles", str(moved)))
    assert finding["answer"] == "not_reproduced"
    assert finding["verdict"] == "same"
    assert finding["last_good"] is finding["first_bad"] is finding["ratio"] is None


def test_a_loss_of_accuracy_is_found_where_no_speed_changed(demo: Demo, tmp_path: Path) -> None:
    worse = ("v0.20.0", "v0.20.1", "v0.20.2", *AFTER)
    moved = profiles.all_alike(tmp_path / "profiles", lambda name: {"accuracy": 0.80 if name in worse else 0.92})
    quick = ("--workload", "long-prefix-decode-128")
    finding = demo.finish(demo.start("--exit", *quick, "--metric", "gsm8k", "--profiles", str(moved)))
    assert finding["answer"] == "confirmed"
    assert (finding["last_good"], finding["first_bad"]) == ("v0.19.1", "v0.20.0")
    assert "v0.20.0" in finding["accuracy"]["sentence"]
    assert "95 % interval" in finding["accuracy"]["sentence"]


def test_it_survives_kill_9_of_controller_and_runner_and_an_interrupted_demo(demo: Demo) -> None:
    first = demo.start("--exit", *QUICK)
    demo.until(lambda: len(demo.launches()) >= 2, "two finished launches")
    demo.kill(r"service\.cli serve")
    demo.until(lambda: len(demo.launches()) >= 4, "a launch after the controller's death")
    demo.kill(r"runners\.cli run")
    demo.until(lambda: len(demo.launches()) >= 5, "a launch after the runner's death")
    before = demo.launches()
    first.send_signal(signal.SIGINT)
    assert first.wait(120) == 130, demo.output()
    assert demo.processes() == []
    finding = demo.finish(demo.start("--exit", "--resume"))
    assert finding["answer"] == "confirmed"
    assert (finding["last_good"], finding["first_bad"]) == ("v0.18.1", "v0.19.0")
    assert set(before.values()) <= set(finding["launch_ids"])
    assert len(set(finding["launch_ids"])) == len(finding["launch_ids"])
    assert demo.processes() == []


def test_a_pause_frees_the_slots_for_others_and_a_cancelled_one_keeps_what_it_measured(demo: Demo) -> None:
    process = demo.start(*QUICK)
    demo.until(lambda: len(demo.launches()) >= 2, "two finished launches")
    bisect_id = demo.bisect()["id"]
    assert demo.post(f"/bisects/{bisect_id}/pause")["paused"] is True
    demo.until(lambda: demo.slots() == ["free", "free"], "both slots free")
    held = demo.bisect(bisect_id)
    assert held["state"] in ("checking_ends", "searching", "confirming")
    _compare_meanwhile(demo)
    assert demo.launches(bisect_id) == {job["id"]: job["launch_id"] for job in held["jobs"] if job["launch_id"]}
    assert demo.post(f"/bisects/{bisect_id}/resume")["paused"] is False
    demo.until(lambda: demo.bisect(bisect_id)["state"] == "ended", "the end of the bisect")
    found = demo.bisect(bisect_id)["finding"]
    assert (found["answer"], found["last_good"], found["first_bad"]) == ("confirmed", "v0.18.1", "v0.19.0")

    asked = {
        "good": "v0.18.0",
        "bad": "v0.24.0",
        "recipe": held["cell"]["recipe"],
        "workload": held["cell"]["workload"],
    }
    second = demo.post("/bisects", asked)["id"]
    demo.until(lambda: len(demo.launches(second)) >= 2, "two launches of the second bisect")
    before = demo.launches(second)
    demo.post(f"/bisects/{second}/cancel")
    demo.until(lambda: demo.bisect(second)["state"] == "cancelled", "the cancelled bisect's end")
    demo.until(lambda: demo.slots() == ["free", "free"], "both slots free again")
    assert before.items() <= demo.launches(second).items()
    assert demo.bisect(second)["answer"] is None
    process.send_signal(signal.SIGINT)
    assert process.wait(120) in (0, 130), demo.output()
    assert demo.processes() == []


def _compare_meanwhile(demo: Demo) -> None:
    """A request of a person gets the slots while the bisect is held."""
    asked: dict[str, Any] = {"kind": "comparison", "base": "v0.23.0", "head": "v0.24.0", "blocks": 1}
    asked |= {"recipe": "simulated-mi350x-tp4", "workload": "long-prefix-decode-128"}
    request_id = demo.post("/requests", asked)["id"]
    demo.until(lambda: demo.get(f"/requests/{request_id}")["state"] == "done", "the comparison's end")

"""The demo with everything real in it: controller, runner, engines, REST, files."""

import signal
import tomllib
from pathlib import Path
from typing import Any

import pytest

from images.catalog import builds
from tests.e2e.demo_process import Demo

pytestmark = pytest.mark.timeout(900)


def _moved(folder: Path, step_factor: float) -> Path:
    """Copy the profiles, with v0.19.1 as v0.18.0 but for its step times, which are ``step_factor`` as long."""
    folder.mkdir()
    for path in builds.PROFILES.glob("v*.toml"):
        (folder / path.name).write_bytes(path.read_bytes())
    text = (folder / "v0.18.0.toml").read_text()
    assert tomllib.loads(text)["step_factor"] == 1.0
    lines = [f"step_factor = {step_factor}" if line.startswith("step_factor") else line for line in text.splitlines()]
    lines = ['version = "0.19.1"' if line.startswith("version") else line for line in lines]
    (folder / "v0.19.1.toml").write_text("\n".join(lines) + "\n")
    return folder


def test_the_published_regression_is_found_and_its_true_size_lies_in_the_interval(demo: Demo) -> None:
    finding = demo.finish(demo.start("--exit", "--seed", "3"))
    assert finding["verdict"] == "worse"
    assert (finding["last_good"], finding["first_bad"]) == ("v0.18.0", "v0.19.1")
    low, high = finding["interval"]
    assert high - low <= 0.10
    assert low <= finding["truth"] <= high
    assert 1.40 < finding["truth"] < 1.50
    assert len(set(finding["launch_ids"])) == 8
    assert len(finding["raw_logs"]) == 24
    assert demo.processes() == []


@pytest.mark.parametrize(
    ("step_factor", "verdicts"), [(0.88, {"better"}), (1.0, {"same", "unknown"})], ids=["12% faster", "no difference"]
)
def test_the_truth_moves_and_the_result_follows(
    demo: Demo, tmp_path: Path, step_factor: float, verdicts: set[str]
) -> None:
    profiles = _moved(tmp_path / "profiles", step_factor)
    finding = demo.finish(demo.start("--exit", "--profiles", str(profiles)))
    assert finding["verdict"] in verdicts
    assert finding["first_bad"] is None


def _launches(demo: Demo) -> dict[str, str]:
    return {job["id"]: job["launch_id"] for job in demo.jobs() if job.get("launch_id")}


def test_a_request_survives_kill_9_of_runner_and_controller_and_an_interrupted_demo(demo: Demo) -> None:
    first = demo.start("--exit")
    demo.until(lambda: len(_launches(demo)) >= 2, "two finished launches")
    demo.until(lambda: _measuring(demo), "a launch that measures")
    demo.kill(r"runners\.cli run")
    demo.until(lambda: len(_launches(demo)) >= 3, "a launch after the runner's death")
    demo.kill(r"service\.cli serve")
    demo.until(lambda: len(_launches(demo)) >= 4, "a launch after the controller's death")
    before = _launches(demo)
    first.send_signal(signal.SIGINT)
    assert first.wait(120) == 130, demo.output()
    assert demo.processes() == []
    finding = demo.finish(demo.start("--exit", "--resume"))
    assert finding["verdict"] == "worse"
    assert set(before.values()) <= set(finding["launch_ids"])
    assert len(finding["launch_ids"]) == 8
    assert demo.processes() == []


def _measuring(demo: Demo) -> bool:
    attempts: list[dict[str, Any]] = [job.get("attempt") or {} for job in demo.jobs()]
    return any(attempt.get("state") == "measuring" for attempt in attempts)

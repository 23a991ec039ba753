"""The demo that compares, with everything real in it: controller, runner, engines, REST, files."""

from pathlib import Path

import pytest

from tests.e2e import profiles
from tests.e2e.demo_process import Demo

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]


def test_the_published_regression_is_measured_and_its_true_size_lies_in_the_interval(demo: Demo) -> None:
    finding = demo.finish(demo.start("compare", "--exit", "--seed", "3"))
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
    moved = profiles.all_alike(
        tmp_path / "profiles", lambda name: {"step_factor": step_factor if name == "v0.19.1" else 1.0}
    )
    command = ("compare", "--exit", "--workload", "long-prefix-decode-128", "--profiles", str(moved))
    finding = demo.finish(demo.start(*command))
    assert finding["verdict"] in verdicts
    assert finding["first_bad"] is None

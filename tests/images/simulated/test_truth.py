"""The truth is computed from what the engines logged, and refused when it isn't in there."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from images.simulated.steplog import StepLogError, read_lines
from images.simulated.truth import measure_launch, step_ratio
from tests.images.simulated.engine_process import ROOT


def _log(path: Path, ms: float, nominal_ms: float, tpot_ms: float) -> Path:
    step = {"kind": "step", "start_ns": 0, "planned_ms": 1.0, "context_tokens": 9, "nominal_ms": nominal_ms}
    request = {"kind": "request", "finish_reason": "length", "first_emit_ns": 10, "cached_tokens": 0}
    lines = [
        {"kind": "launch", "max_num_seqs": 2, "launch_effect": 1.25},
        *(step | {"ms": each, "decoding": 2, "prefill_tokens": 0} for each in (ms - 0.5, ms, ms + 9)),
        *(
            step | {"ms": 100.0, "decoding": 2, "prefill_tokens": 5},
            step | {"ms": 50.0, "decoding": 1, "prefill_tokens": 0},
        ),
        *(request | {"output_tokens": 11, "last_emit_ns": 10 + round(tpot_ms * 1e7)} for _ in range(3)),
        request | {"output_tokens": 2, "last_emit_ns": 10},
        request | {"output_tokens": 11, "last_emit_ns": 10**12, "finish_reason": "abort"},
    ]
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return path


def test_a_launch_is_the_median_of_its_full_steps_and_of_its_longest_requests(tmp_path: Path) -> None:
    launch = measure_launch(_log(tmp_path / "a", 5.0, 4.5, 6.0))
    assert (launch.real_ms, launch.nominal_ms, launch.steps, launch.requests) == (5.0, 4.5, 3, 3)
    assert launch.tpot_ms == pytest.approx(6.0)
    assert launch.tpot_free_ms == pytest.approx(6.0 / 1.25)


def test_ratios_are_of_means_over_launches(tmp_path: Path) -> None:
    base = [_log(tmp_path / "a", 5.0, 4.0, 6.0), _log(tmp_path / "b", 7.0, 6.0, 8.0)]
    head = [_log(tmp_path / "c", 9.0, 10.0, 10.5)]
    truth = step_ratio(base, head)
    assert [truth.real, truth.nominal] == pytest.approx([1.5, 2.0])
    assert [truth.tpot, truth.tpot_free] == pytest.approx([1.5, 1.5])
    assert (truth.base_launches, truth.head_launches) == (2, 1)
    command = [sys.executable, "-m", "images.simulated", "truth", "--base", *map(str, base), "--head", str(head[0])]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert orjson.loads(printed.stdout)["real"] == pytest.approx(1.5)


def test_a_line_cut_short_by_a_kill_is_left_out_and_a_broken_one_is_an_error(tmp_path: Path) -> None:
    path = _log(tmp_path / "a", 5.0, 4.5, 6.0)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind":"st')
    assert len(list(read_lines(path))) == whole.count(b"\n")
    path.write_bytes(b'{"kind":\n' + whole)
    with pytest.raises(StepLogError, match="line 1 is not JSON"):
        measure_launch(path)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b"", "no launch line"),
        (b'{"kind":"launch","max_num_seqs":2,"launch_effect":1}\n', "no step in which all 2 requests decoded"),
        (b'{"kind":"launch"}\n', "no number 'max_num_seqs'"),
        (
            b'{"kind":"launch","max_num_seqs":2,"launch_effect":1}\n'
            b'{"kind":"step","decoding":2,"prefill_tokens":0,"ms":1.0,"nominal_ms":1.0}\n',
            "no request of two or more tokens",
        ),
    ],
)
def test_a_log_without_the_truth_is_refused_by_name(tmp_path: Path, lines: bytes, message: str) -> None:
    path = tmp_path / "steps.log"
    path.write_bytes(lines)
    with pytest.raises(StepLogError, match=message):
        measure_launch(path)
    command = [sys.executable, "-m", "images.simulated", "truth", "--base", str(path), "--head", str(path)]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert str(path) in refused.stderr

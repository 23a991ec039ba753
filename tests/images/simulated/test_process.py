"""The process: wrong use is refused, the end is quick and clean, and no worker outlives its engine."""

import hashlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import orjson
import pytest

from images.simulated.settings import parse_arguments
from images.simulated.steplog import read_lines
from tests.images.simulated.conftest import Engines
from tests.images.simulated.engine_process import FAST, ROOT, WAIT_S, EngineProcess, await_gone


def _refused(*arguments: str) -> str:
    command = [sys.executable, "-m", "images.simulated", "serve", "--served-model-name", "m", "--port", "0", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert run.returncode == 2, run.stderr
    return run.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_engine_and_its_worker_cleanly(engines: Engines, number: int) -> None:
    engine = engines.start()
    (worker,) = engine.children()
    assert engine.stop(number) == (0, "")
    await_gone(worker)


def test_a_signal_in_the_midst_of_a_stream_ends_it_too_and_the_log_is_complete(
    engines: Engines, tmp_path: Path
) -> None:
    engine = engines.start("--step-log", str(tmp_path / "steps.log"))
    fields = {"model": "nonce-7", "prompt": "x", "max_tokens": 60_000, "ignore_eos": True, "stream": True}
    with (
        httpx.Client(timeout=WAIT_S) as client,
        client.stream("POST", f"{engine.url}/v1/completions", json=fields) as response,
    ):
        lines_read = response.iter_lines()
        for _ in range(10):
            next(lines_read)
        engine.process.send_signal(signal.SIGTERM)
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines_read)
    assert engine.stop() == (0, "")
    lines = list(read_lines(tmp_path / "steps.log"))
    assert lines[0]["kind"] == "launch"
    assert sum(line["kind"] == "step" for line in lines) >= 5


def test_the_whole_group_may_be_signalled(engines: Engines) -> None:
    engine = engines.start()
    (worker,) = engine.children()
    os.kill(worker, signal.SIGTERM)
    os.kill(worker, signal.SIGINT)
    assert engine.complete("x", 2).status_code == 200
    assert engine.stop() == (0, "")


def test_a_kill_of_the_engine_leaves_no_worker(engines: Engines) -> None:
    engine = engines.start()
    (worker,) = engine.children()
    engine.stop(signal.SIGKILL)
    await_gone(worker)


def test_the_death_of_the_worker_ends_the_engine_with_an_error(engines: Engines) -> None:
    engine = engines.start()
    (worker,) = engine.children()
    os.kill(worker, signal.SIGKILL)
    assert engine.process.wait(WAIT_S) == 1
    assert "the prompt worker died" in engine.stop()[1]


def test_a_build_that_cannot_start_says_so_and_exits(engines: Engines) -> None:
    extra = '[start_failure]\nmessage = "HIP error: out of memory"\nafter_s = 0.05\n'
    engine = engines.start(extra=extra, ready=False)
    assert engine.process.wait(WAIT_S) == 1
    assert engine.stop() == (1, "ERROR: HIP error: out of memory\n")


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    profile = tmp_path / "p.toml"
    profile.write_text(FAST)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        engine = EngineProcess(profile, "--port", str(port), ready=False)
        assert engine.process.wait(WAIT_S) == 1
        assert f"cannot bind 127.0.0.1:{port}" in engine.stop()[1]


def test_a_changed_profile_is_refused(tmp_path: Path) -> None:
    profile = tmp_path / "p.toml"
    profile.write_text(FAST)
    wrong = hashlib.sha256(b"another").hexdigest()
    message = _refused("--profile-file", str(profile), "--profile-sha256", wrong)
    assert str(profile) in message
    assert wrong in message


def test_a_bad_profile_is_refused_with_file_and_key(tmp_path: Path) -> None:
    profile = tmp_path / "p.toml"
    profile.write_text(FAST + "speed = 3\n")
    message = _refused("--profile-file", str(profile))
    assert str(profile) in message
    assert "'speed': unknown" in message


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--tensor-parallel-size", "4"), "--tensor-parallel-size"),
        (("--time-compression", "5"), "--time-compression"),
        (("--time-compression", "nan"), "--time-compression"),
        (("--time-compression", "0.5"), "--time-compression"),
        (("--port", "70000"), "--port"),
        (("--max-num-seqs", "0"), "--max-num-seqs"),
        (("--profile-sha256", "abc"), "--profile-sha256"),
        (("--max-num-seqs", "16", "--max-num-batched-tokens", "8"), "--max-num-batched-tokens"),
        (("--max", "3"), "--max"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(
    arguments: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_arguments(["--profile-file", "p", "--served-model-name", "m", *arguments], {})
    assert caught.value.code == 2
    assert named in capsys.readouterr().err


def test_a_model_longer_than_the_cache_is_refused(tmp_path: Path) -> None:
    profile = tmp_path / "p.toml"
    profile.write_text(FAST + "kv_blocks = 100\n")
    assert "'kv_blocks'" in _refused("--profile-file", str(profile))


def test_the_same_seed_gives_the_same_launch_effect(engines: Engines, tmp_path: Path) -> None:
    profile = tmp_path / "noisy.toml"
    profile.write_text(FAST.replace("launch_sd = 0.0", "launch_sd = 0.006"))
    effects = []
    for index, seed in enumerate((5, 5, 6)):
        log = tmp_path / f"{index}.log"
        engines.start("--seed", str(seed), "--step-log", str(log), profile=profile).stop()
        effects.append(orjson.loads(log.read_bytes().splitlines()[0])["launch_effect"])
    assert effects[0] == effects[1] != effects[2]

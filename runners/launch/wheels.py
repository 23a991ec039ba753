"""Installs a wheel set of real vLLM into an environment of its own, once per machine.

An environment is ``CACHE/NAME-<first 12 of the digest>``. A marker file, written last, says that it is complete; a
folder without it was left by an installer that died, and is made anew. A lock beside the folder, held by the
installer and by the pip that it started, lets one process at a time make an environment; the kernel drops it when the
last of them is gone.
"""

import errno
import fcntl
import json
import os
import platform
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runners.launch.installer import Installer, InstallStopped
from runners.launch.wheel_sets import (
    Distribution,
    StartupStep,
    SystemLibrary,
    WheelSet,
    WheelSetError,
    invalid,
    read_set,
)
from service.contract.clock import Clock
from service.contract.failures import FailureClass

__all__ = ["InstallLimits", "InstallStopped", "WheelEnvironment", "WheelSetError", "install"]

MARKER = "complete.json"
PROBE = (
    "import importlib.metadata, json, vllm; print(json.dumps([importlib.metadata.version('vllm'), vllm.__version__]))"
)
LIBRARY_DIRS = tuple(
    Path(folder)
    for folder in ("/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")
)


@dataclass(frozen=True)
class InstallLimits:
    """What an installation may take: free bytes that must be there before it starts, and seconds for each step."""

    min_free_bytes: int = 20 * 10**9
    lock_wait_s: float = 1800.0
    venv_s: float = 300.0
    pip_s: float = 1800.0
    probe_s: float = 300.0


@dataclass(frozen=True)
class WheelEnvironment:
    """A complete environment. ``env`` is to be laid over the server's environment; ``command`` comes before ``serve``.

    ``version`` is the version that the distribution ``vllm`` reports from inside; the server's own ``/version``
    answer must match ``version_answer`` as a whole. ``digest`` is that of the wheel set.
    """

    root: Path
    python: Path
    command: tuple[str, ...]
    env: Mapping[str, str]
    digest: str
    version: str
    version_answer: re.Pattern[str]
    ready_timeout_s: float
    startup: tuple[StartupStep, ...]

    def startup_step(self, line: str) -> str | None:
        """Return what a line of the server's log says about its start, or None."""
        return next((step.says for step in self.startup if step.pattern.search(line)), None)


def install(
    set_dir: Path,
    name: str,
    cache: Path,
    on_progress: Callable[[str], None],
    *,
    clock: Clock,
    expected_digest: str | None = None,
    limits: InstallLimits | None = None,
    stop: threading.Event | None = None,
    library_dirs: tuple[Path, ...] = LIBRARY_DIRS,
) -> WheelEnvironment:
    """Return the environment of the set ``name``, made if it is not there yet.

    Blocks for minutes when it has to be made; ``on_progress`` is called from this thread with a line for people.
    ``stop``, once set, ends it within a second or so with InstallStopped. Whatever ends it leaves no process and no
    lock behind.

    Raises WheelSetError: spec_invalid (no such set, another digest than ``expected_digest``, a hash that does not
    match, a missing Python or system library, another version inside), image_pull (pip could not fetch or install),
    disk_full, or timeout_step (a step, or the wait for another installer, ran past its limit).
    """
    wheel_set = read_set(set_dir, name)
    if expected_digest is not None and expected_digest != wheel_set.digest:
        raise invalid(
            f"wheel set {name}: its files have the digest {wheel_set.digest}, but {expected_digest} is asked for"
        )
    libraries = [
        _system_library(one, name, library_dirs) for one in wheel_set.preloads if isinstance(one, SystemLibrary)
    ]
    limits = limits or InstallLimits()
    root = cache / f"{name}-{wheel_set.digest[:12]}"
    _make_cache(cache)
    installer = Installer(name, clock, on_progress, stop or threading.Event())
    with _locked(root.with_name(root.name + ".lock"), installer, limits.lock_wait_s) as lock:
        if _is_complete(root, wheel_set):
            on_progress(f"{name}: the environment is there already: {root}")
        else:
            installer.held_open = (lock,)
            _make(root, wheel_set, installer, limits, libraries)
        return _environment(root, wheel_set, libraries)


def _make_cache(cache: Path) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise invalid(f"the cache folder {cache} can't be made: {error.strerror}") from error


@contextmanager
def _locked(path: Path, installer: Installer, wait_s: float) -> Iterator[int]:
    """Hold the lock file. flock, not lockf: it belongs to the open file, which pip inherits, and so outlives an
    installer that is killed for just as long as its pip still writes into the environment.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:

        def take() -> bool:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        waits_for = "another process to finish with this environment"
        installer.wait_until(take, wait_s, waits_for, f"the lock {path} is still held")
        yield descriptor
    finally:
        os.close(descriptor)


def _is_complete(root: Path, wheel_set: WheelSet) -> bool:
    try:
        marker = json.loads((root / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    matches = isinstance(marker, dict) and marker.get("digest") == wheel_set.digest
    # A removed or replaced system Python leaves links that lead nowhere.
    return matches and (root / "bin" / "python").exists() and (root / "bin" / "vllm").exists()


def _make(root: Path, wheel_set: WheelSet, installer: Installer, limits: InstallLimits, libraries: list[Path]) -> None:
    """Make the environment, or leave nothing of it."""
    base = _base_python(wheel_set)
    if root.exists():
        installer.on_progress(f"{wheel_set.name}: removing an environment that was left half made")
        shutil.rmtree(root)
    _check_space(root.parent, wheel_set.name, limits.min_free_bytes)
    try:
        installer.make_venv(base, root, limits.venv_s)
        installer.pip_install(root, wheel_set.requirements, wheel_set.packages, limits.pip_s)
        _copy_dist_info(root, wheel_set.distribution)
        answers = installer.probe(root, PROBE, _environment(root, wheel_set, libraries).env, limits.probe_s)
        _check_versions(answers, wheel_set)
        _write_marker(root, wheel_set, answers)
    except OSError as error:
        shutil.rmtree(root, ignore_errors=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise WheelSetError(
                FailureClass.DISK_FULL, f"{wheel_set.name}: no room left under {root.parent}"
            ) from error
        raise
    except BaseException:
        shutil.rmtree(root, ignore_errors=True)
        raise
    installer.on_progress(f"{wheel_set.name}: the environment is complete: vllm {wheel_set.distribution.version}")


def _base_python(wheel_set: WheelSet) -> str:
    """Return an interpreter of the version that the set's wheels are for."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise invalid(f"wheel set {wheel_set.name} is for x86-64 Linux, not {platform.machine()} {platform.system()}")
    if f"{sys.version_info.major}.{sys.version_info.minor}" == wheel_set.python:
        return sys.executable
    found = shutil.which(f"python{wheel_set.python}")
    if found is None:
        package = f"python{wheel_set.python}-venv"
        raise invalid(f"wheel set {wheel_set.name} needs Python {wheel_set.python}: apt-get install {package}")
    return found


def _check_space(cache: Path, name: str, min_free_bytes: int) -> None:
    free_bytes = shutil.disk_usage(cache).free
    if free_bytes < min_free_bytes:
        others = sorted(one.name for one in cache.iterdir() if one.is_dir())
        removable = f", remove environments no longer needed ({', '.join(others)})" if others else ""
        raise WheelSetError(
            FailureClass.DISK_FULL,
            f"wheel set {name} needs {min_free_bytes / 1e9:.0f} GB free under {cache}; {free_bytes / 1e9:.1f} GB are: "
            f"make room{removable}, or choose a cache folder on a larger disk",
        )


def _system_library(preload: SystemLibrary, name: str, library_dirs: tuple[Path, ...]) -> Path:
    for folder in library_dirs:
        path = folder / preload.library
        if path.exists():
            return path
    raise invalid(f"wheel set {name} needs {preload.library}: apt-get install {preload.debian_package}")


def _copy_dist_info(root: Path, distribution: Distribution) -> None:
    """Put the metadata of ``distribution.source`` beside it under the name that vLLM looks for.

    RECORD stays away, so that no file belongs to two distributions, and so do the entry points: vLLM would find each
    of its plugins twice.
    """
    stem = re.sub(r"[-_.]+", "_", distribution.source)
    found = sorted(root.glob(f"lib/python*/site-packages/{stem}-*.dist-info"))
    if len(found) != 1:
        raise invalid(f"the set installs {len(found)} distributions called {distribution.source}, not one")
    target = found[0].with_name(f"{distribution.name}-{distribution.version}.dist-info")
    target.mkdir()
    head, blank, body = (found[0] / "METADATA").read_text(encoding="utf-8").partition("\n\n")
    head = re.sub(r"(?m)^Name:.*$", f"Name: {distribution.name}", head)
    head = re.sub(r"(?m)^Version:.*$", f"Version: {distribution.version}", head)
    (target / "METADATA").write_text(head + blank + body, encoding="utf-8")
    shutil.copy(found[0] / "WHEEL", target)


def _check_versions(answers: list[str], wheel_set: WheelSet) -> None:
    expected = wheel_set.distribution.version
    if answers[0] != expected or wheel_set.version_answer.fullmatch(answers[1]) is None:
        raise invalid(f"wheel set {wheel_set.name}: inside, vllm says that it is {answers}, not {expected}")


def _write_marker(root: Path, wheel_set: WheelSet, answers: list[str]) -> None:
    """Write the marker so that it is either absent or whole, also after a power cut."""
    text = json.dumps({"wheel_set": wheel_set.name, "digest": wheel_set.digest, "vllm": answers}, indent=2)
    draft = root / (MARKER + ".draft")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, root / MARKER)


def _environment(root: Path, wheel_set: WheelSet, libraries: list[Path]) -> WheelEnvironment:
    env = {key: value.replace("{root}", str(root)) for key, value in wheel_set.environment.items()}
    system, preloads = iter(libraries), []
    for preload in wheel_set.preloads:
        if isinstance(preload, SystemLibrary):
            preloads.append(str(next(system)))
            continue
        found = sorted(root.glob(preload.glob))
        if len(found) != 1:
            raise invalid(f"wheel set {wheel_set.name}: {preload.glob} matches {len(found)} files of {root}, not one")
        preloads.append(str(found[0]))
    if preloads:
        env["LD_PRELOAD"] = ":".join(preloads)
    return WheelEnvironment(
        root=root,
        python=root / "bin" / "python",
        command=(str(root / "bin" / "vllm"),),
        env=env,
        digest=wheel_set.digest,
        version=wheel_set.distribution.version,
        version_answer=wheel_set.version_answer,
        ready_timeout_s=wheel_set.ready_timeout_s,
        startup=wheel_set.startup,
    )

"""A simulated build becomes a command. Only the engine's process reads the profile; here it is a name and a hash."""

import hashlib
import sys
import sysconfig
from pathlib import Path

from runners.launch.launchable import Launchable, LaunchError, last_line
from runners.settings import bundled
from service.contract.builds import SimulatedSource
from service.contract.failures import FailureClass
from service.contract.lease import Lease

STEP_LOG = "steps.log"


def prepare(
    lease: Lease, source: SimulatedSource, profiles_dir: Path, folder: Path, questions: Path | None
) -> Launchable:
    """Return how the profile is served, its step log in ``folder``; it can answer ``questions``, if any.

    Raises LaunchError spec_invalid when there is no such profile, or when it is not the one that was registered.
    """
    profile = (profiles_dir / f"{source.profile}.toml").resolve()
    try:
        actual = hashlib.sha256(profile.read_bytes()).hexdigest()
    except OSError as error:
        raise LaunchError(
            FailureClass.SPEC_INVALID,
            f"profile {source.profile}: {profile} can't be read: {error.strerror}; the folder is"
            " BACKSLIDE_RUNNER_PROFILES_DIR",
        ) from error
    if actual != source.sha256:
        raise LaunchError(
            FailureClass.SPEC_INVALID,
            f"profile {source.profile}: {profile} has the SHA-256 {actual}, but build {lease.build.name} was registered"
            f" with {source.sha256}: register the changed profile as a build",
        )
    recipe = lease.recipe
    step_log = folder / STEP_LOG
    # -P: no file of the folder in which it runs can shadow a module.
    program = [sys.executable, "-P", "-m", "images.simulated", "serve", "--profile-file", str(profile)]
    program += ["--profile-sha256", source.sha256, "--seed", str(lease.seed)]
    if questions is not None:
        program += ["--gsm8k", str(questions)]
    program += ["--time-compression", f"{recipe.time_compression:g}", "--step-log", str(step_log)]
    version = lease.build.version.removeprefix("v")
    return Launchable(
        program=tuple(program),
        args=tuple(recipe.args),
        env={**_python_path(), **recipe.env},
        version=version,
        matches_version=lambda answer: answer == version,
        startup_step=last_line,
        step_log=step_log,
    )


def _python_path() -> dict[str, str]:
    """Return what makes ``images`` importable from any folder: nothing when it is installed."""
    home = bundled().parent.resolve()
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    return {} if home in installed else {"PYTHONPATH": str(home)}

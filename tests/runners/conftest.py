"""Fixtures for the runner's tests."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runners.settings import RunnerSettings, bundled
from service.contract import ids
from service.contract.builds import Build, SimulatedSource
from service.contract.lease import Lease
from service.contract.recipes import ResolvedRecipe
from service.contract.workloads import Workload
from tests.runners.fake_controller import FakeController
from tests.runners.runner_process import RunnerProcess

SHORT = Workload(
    name="short",
    prefix_tokens=2048,
    suffix_tokens=256,
    output_tokens=16,
    concurrency=4,
    requests=8,
    warmup_requests=4,
)
LONG = SHORT.model_copy(update={"name": "long", "output_tokens": 64, "requests": 120, "repetitions": 20})
"""Measures for longer than any test needs."""


@pytest.fixture
def controller() -> Iterator[FakeController]:
    with FakeController() as fake:
        yield fake


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """A folder with the profile v0.18.0, quick to start."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    text = bundled("catalog", "simulated", "v0.18.0.toml").read_text()
    lines = ["start_s = 0.2" if line.startswith("start_s") else line for line in text.splitlines()]
    (folder / "v0.18.0.toml").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def settings(tmp_path: Path, profiles: Path) -> RunnerSettings:
    return RunnerSettings(
        state_dir=tmp_path / "state",
        cache_dir=tmp_path / "cache",
        profiles_dir=profiles,
        keep_free_bytes=0,
        lease_wait_s=5,
        stall_s=20,
        retry_cap_s=0.2,
    )


@pytest.fixture
def make_lease(profiles: Path) -> Callable[..., Lease]:
    """Makes leases of v0.18.0 (by whatever name its profile has) with a short workload; fields can be replaced."""

    def make(profile: str = "v0.18.0", **changes: object) -> Lease:
        sha256 = hashlib.sha256((profiles / f"{profile}.toml").read_bytes()).hexdigest()
        number = ids.new_id("att")
        lease = Lease(
            attempt_id=number,
            job_id=ids.new_id("job"),
            request_id=ids.new_id("req"),
            number=1,
            fence=1,
            token=f"bka_{number}",
            ttl_s=60,
            renew_s=0.5,
            slot=0,
            build=Build(
                id=ids.new_id("bld"),
                name=profile,
                version="v0.18.0",
                source=SimulatedSource(profile=profile, sha256=sha256),
            ),
            recipe=ResolvedRecipe(
                model="simulated",
                tensor_parallel=4,
                args=["--max-num-seqs", "4"],
                env={},
                ready_timeout_s=60,
                time_compression=4.0,
            ),
            workload=SHORT,
            cell="0" * 64,
            hardware="simulated",
            seed=7,
        )
        return lease.model_copy(update=changes)

    return make


@pytest.fixture
def runner(settings: RunnerSettings, controller: FakeController, tmp_path: Path) -> Iterator[RunnerProcess]:
    """``backslide-runner run`` as a process of its own, enrolled at the fake controller."""
    process = RunnerProcess(settings, controller, tmp_path)
    yield process
    process.end()

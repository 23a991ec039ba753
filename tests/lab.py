"""A controller with launches in its database: requests go through the actions, measured values are put into rows."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from service.actions import catalog, migrate, submit
from service.actions.context import Caller, Context
from service.actions.views import BuildView, LaunchView, ReasonView, RequestView
from service.contract.builds import BuildKind, BuildSpec
from service.contract.cells import Cell
from service.contract.lease import AttemptState
from service.contract.requests import ComparisonRequest
from service.domain.states import JobState, RequestState, RunnerState, SlotState
from service.settings import Settings
from service.store.blobs import Blobs
from service.store.engine import Store
from service.store.tables import Artifact, Attempt, Job, Launch, Repetition, RequestRow, Runner, Slot
from tests import measured

ADA = Caller("ada", "submitter")
Values = Sequence[Sequence[dict[str, float] | None]]
"""Metrics by block, as base, head, head, base; None for a launch that was not made yet."""

MIRRORED = (1, 0, 3, 2)
"""Where odd blocks, which run head, base, base, head, find theirs."""


class SteppingClock:
    """Every look at the clock is a second later than the one before."""

    def __init__(self) -> None:
        self.at = measured.START

    def now(self) -> datetime:
        self.at += timedelta(seconds=1)
        return self.at

    def monotonic_s(self) -> float:
        return (self.at - measured.START).total_seconds()


class Lab:
    """One controller on SQLite in ``directory``, with one online runner of two slots. Close it."""

    def __init__(self, directory: Path) -> None:
        settings = Settings(data_dir=directory, demo=True)
        self.ctx = Context(Store(settings.resolved_database_url), Blobs(directory / "blobs"), SteppingClock(), settings)
        migrate.upgrade(self.ctx)
        self._runner()
        self.launched = 0

    def close(self) -> None:
        self.ctx.store.close()

    def build(self, name: str, kind: BuildKind = BuildKind.SIMULATED) -> BuildView:
        picture = measured.build(name, kind)
        spec = BuildSpec(name=picture.name, version=picture.version, source=picture.source)
        return catalog.register_build(self.ctx, ADA, spec)

    def request(
        self,
        base: BuildView,
        head: BuildView,
        values: Values,
        *,
        where: Cell | None = None,
        metric: str = "tpot_p50_ms",
        invalid: Sequence[tuple[int, int]] = (),
        reason: ReasonView | None = None,
    ) -> RequestView:
        """Ask for ``len(values)`` blocks and store what was measured; done when nothing is left to measure."""
        where = where or measured.cell(base.kind)
        recipe = catalog.register_recipe(self.ctx, ADA, where.recipe)
        workload = catalog.register_workload(self.ctx, ADA, where.workload)
        asked = submit.submit_comparison(
            self.ctx,
            ADA,
            ComparisonRequest(
                base=base.id,
                head=head.id,
                recipe=recipe.id,
                workload=workload.id,
                blocks=len(values),
                metric=metric,
            ),
        )
        for job in asked.jobs:
            place = MIRRORED[job.position] if job.block % 2 else job.position
            metrics = values[job.block][place]
            if metrics is None:
                continue
            self.launched += 1
            validity = "invalid" if (job.block, place) in invalid else "valid"
            self._store(
                job.id,
                measured.launch(
                    job.build,
                    self.launched,
                    metrics,
                    where=where,
                    request=asked.id,
                    block=job.block,
                    position=job.position,
                    slot=job.block % 2,
                    validity=validity,
                    reason=reason if validity == "invalid" else None,
                ),
            )
        if all(metrics is not None for block in values for metrics in block):
            self._end(asked.id)
        return asked

    def _runner(self) -> None:
        with self.ctx.store.write() as session:
            session.add(
                Runner(
                    id="run_0000000000000001",
                    name="node-7",
                    hostname="node-7.example",
                    state=RunnerState.ONLINE,
                    boot_id="boot_1",
                    hardware=["mi350x", "cpu"],
                    build_kinds=["simulated", "wheels"],
                    protocol_version=1,
                    agent_version="0.1.0",
                    token_sha256=measured.sha("token"),
                    last4="1234",
                    created_at=measured.START,
                    last_seen_at=measured.START,
                )
            )
            session.flush()
            for index in range(2):
                session.add(
                    Slot(id=f"slt_{index}", runner_id="run_0000000000000001", index=index, state=SlotState.FREE)
                )

    def _store(self, job_id: str, launch: LaunchView) -> None:
        with self.ctx.store.write() as session:
            session.add(
                Attempt(
                    id=launch.attempt_id,
                    job_id=job_id,
                    number=1,
                    fence=1,
                    state=AttemptState.COMPLETED,
                    runner_id=launch.runner_id,
                    slot_id=launch.slot_id,
                    boot_id="boot_1",
                    lease_request_id=launch.attempt_id,
                    lease_until_at=launch.created_at,
                    created_at=launch.created_at,
                    ended_at=launch.created_at,
                    steps=[],
                )
            )
            session.flush()
            session.add(
                Launch(
                    job_id=job_id,
                    cell_digest=launch.cell_digest,
                    build_id=launch.build.id,
                    metrics=launch.metrics,
                    report=launch.report.model_dump(mode="json"),
                    **launch.model_dump(
                        include={"id", "attempt_id", "request_id", "runner_id", "slot_id", "block", "position"}
                        | {"validity", "created_at"}
                    ),
                )
            )
            session.flush()
            for one in launch.repetitions:
                session.add(
                    Repetition(
                        id=f"rep_{launch.id}_{one.number}",
                        launch_id=launch.id,
                        raw_log_sha256=one.raw_log,
                        **one.model_dump(mode="json", exclude={"raw_log"}),
                    )
                )
            for artifact in launch.artifacts:
                session.add(
                    Artifact(
                        id=f"art_{launch.id}_{artifact.name}",
                        attempt_id=launch.attempt_id,
                        created_at=launch.created_at,
                        **artifact.model_dump(),
                    )
                )
            job = session.get_one(Job, job_id)
            job.state, job.ended_at, job.fence = JobState.DONE, launch.created_at, 1
            session.add(job)

    def _end(self, request_id: str) -> None:
        with self.ctx.store.write() as session:
            row = session.get_one(RequestRow, request_id)
            row.state, row.ended_at = RequestState.DONE, self.ctx.clock.now()
            session.add(row)

"""What a runner does with an attempt that it was leased: renew, log, upload, hand in, give back.

Every call names the fence of its lease. A fence that is not held any more raises LeaseLost and changes nothing.
"""

from datetime import timedelta
from typing import Any

from service.actions import ingest, outcomes
from service.actions.context import Context
from service.actions.pictures import artifact_view
from service.actions.views import ArtifactView
from service.contract import PROTOCOL_VERSION, canonical
from service.contract.cells import Cell
from service.contract.errors import (
    Conflict,
    InvalidInput,
    LeaseLost,
    NotFound,
    OffsetMismatch,
    ProtocolUnsupported,
    ResultConflict,
    TooLarge,
)
from service.contract.ids import new_id
from service.contract.lease import AttemptState, Directive, LogAnswer, Release, Renewal, RenewalAnswer
from service.contract.upload import ArtifactRef, Completed, Failed, Result, ResultAnswer
from service.domain.states import LIVE_ATTEMPT
from service.store import attempts, events, guards, launches, runners
from service.store.engine import Session
from service.store.logs import AttemptLogs
from service.store.tables import Artifact, Attempt, CellRow, Job, Runner

MAX_LOG_CHUNK_BYTES = 4 * 2**20


def renew(ctx: Context, attempt_id: str, renewal: Renewal) -> RenewalAnswer:
    """Extend a lease by its full time and store what the attempt is doing; answer what the runner is to do.

    An attempt goes forward only: a renewal that names an earlier state than the stored one extends the lease and
    leaves the state. Raises LeaseLost, and InvalidInput for a state that is not a live one.
    """
    if renewal.state not in LIVE_ATTEMPT:
        allowed = ", ".join(LIVE_ATTEMPT)
        raise InvalidInput(f"A renewal can't say {renewal.state}; allowed are: {allowed}.", allowed=list(LIVE_ATTEMPT))
    now = ctx.clock.now()
    with ctx.store.write() as session:
        attempt = _locked(session, attempt_id)
        job = guards.fresh(session, Job, attempt.job_id)
        runner = guards.fresh(session, Runner, attempt.runner_id)
        if job is None or runner is None or not _extend(ctx, session, attempt, job, renewal):
            raise LeaseLost()
        if attempt.state is AttemptState.LEASED:
            runners.occupy(session, now, attempt.slot_id, attempt.id)
        if job.cancel_requested:
            return RenewalAnswer(directive=Directive.CANCEL)
        return RenewalAnswer(directive=Directive.DRAIN if runner.drain_requested else Directive.CONTINUE)


def append_log(ctx: Context, attempt_id: str, fence: int, offset: int, data: bytes) -> LogAnswer:
    """Append to an attempt's log and return its size. Of a log beyond the setting's cap head and tail are kept.

    Raises OffsetMismatch with ``size_bytes`` if the log does not end at ``offset``, TooLarge beyond 4 MiB a call,
    DiskFull, LeaseLost.
    """
    if len(data) > MAX_LOG_CHUNK_BYTES:
        raise TooLarge(f"A log chunk has at most {MAX_LOG_CHUNK_BYTES} bytes, not {len(data)}.")
    size = offset + len(data)
    with ctx.store.write() as session:
        attempt = _locked(session, attempt_id)
        at_end = attempts.log_ends_at(offset)
        if not attempts.touch(session, attempt_id, fence, LIVE_ATTEMPT, at_end, log_bytes=size):
            if not attempts.is_held(session, attempt_id, fence, LIVE_ATTEMPT):
                raise LeaseLost()
            raise OffsetMismatch(f"The log has {attempt.log_bytes} bytes.", size_bytes=attempt.log_bytes)
        logs(ctx).write(attempt_id, offset, data)
    return LogAnswer(size_bytes=size)


def read_log(ctx: Context, attempt_id: str) -> bytes:
    """Return an attempt's log, without its middle where it was longer than the cap; raises NotFound."""
    with ctx.store.read() as session:
        attempt = guards.fresh(session, Attempt, attempt_id)
    if attempt is None:
        raise NotFound(f"There is no attempt {attempt_id!r}.")
    return logs(ctx).read(attempt_id, attempt.log_bytes)


def put_artifact(ctx: Context, attempt_id: str, fence: int, name: str, sha256: str, data: bytes) -> ArtifactView:
    """Store a file of an attempt, also of one whose lease ran out. The same file again is a replay.

    Raises TooLarge beyond the setting, InvalidInput if the hash is another or the name not allowed, Conflict if the
    name holds another file, DiskFull with nothing half-written, LeaseLost.
    """
    if len(data) > ctx.settings.max_artifact_bytes:
        limit = ctx.settings.max_artifact_bytes
        raise TooLarge(f"{name} has {len(data)} bytes; at most {limit} are taken.", limit_bytes=limit)
    ref = ArtifactRef(name=name, sha256=sha256, size_bytes=len(data))
    with ctx.store.read() as session:
        stored = _stored(session, attempt_id, ref)
        if stored is None and not attempts.is_held(session, attempt_id, fence, attempts.ACCEPTING):
            raise LeaseLost()
    ctx.blobs.put(sha256, data)
    if stored is not None:
        return stored
    now = ctx.clock.now()
    lease_until_at = now + timedelta(seconds=ctx.settings.lease_ttl_s)
    with ctx.store.write() as session:
        _locked(session, attempt_id)
        # An upload is a sign of life.
        if not attempts.touch(session, attempt_id, fence, attempts.ACCEPTING, lease_until_at=lease_until_at):
            raise LeaseLost()
        stored = _stored(session, attempt_id, ref)
        if stored is None:
            row = Artifact(id=new_id("art"), attempt_id=attempt_id, created_at=now, **ref.model_dump())
            guards.insert(session, row)
            stored = artifact_view(row)
    return stored


def put_result(ctx: Context, attempt_id: str, result: Result) -> ResultAnswer:
    """Take an attempt's result, once.

    The same result again is a replay; another one raises ResultConflict. The result of an attempt whose lease ran out
    counts if and only if its job has no newer attempt and has not ended. One that does not count is kept for audit
    (``accepted`` is False). Raises ProtocolUnsupported, LeaseLost for another fence, ArtifactMissing, InvalidInput for
    raw logs that don't decode, DiskFull with nothing half-written; after each of these the same call may succeed.
    """
    if result.protocol_version != PROTOCOL_VERSION:
        raise ProtocolUnsupported(f"This controller speaks version {PROTOCOL_VERSION}, not {result.protocol_version}.")
    body = canonical.encode(result.model_dump(mode="json"))
    sha256 = canonical.digest_bytes(body)
    with ctx.store.read() as session:
        replay = _replay(session, attempt_id, sha256)
        if replay is not None:
            return replay
        accepting = attempts.is_held(session, attempt_id, result.fence, attempts.ACCEPTING)
        if not accepting and not attempts.is_held(session, attempt_id, result.fence, tuple(AttemptState)):
            raise LeaseLost()
    measured = _measure(ctx, attempt_id, result) if accepting else None
    ctx.blobs.put(sha256, body)
    try:
        return _count(ctx, attempt_id, result, sha256, measured)
    except outcomes.Overtaken:
        return _keep_orphan(ctx, attempt_id, result, sha256)


def release(ctx: Context, attempt_id: str, release: Release) -> None:
    """Take an attempt back unburned: its job is queued at once, or cancelled if that was asked for.

    Repeating it changes nothing. Raises LeaseLost.
    """
    with ctx.store.write() as session:
        held = outcomes.hold(session, attempt_id)
        ended = (AttemptState.RELEASED, AttemptState.CANCELLED)
        if attempts.is_held(session, attempt_id, release.fence, ended):
            return
        try:
            outcomes.give_back(session, ctx.clock.now(), held, release.fence, release.reason)
        except outcomes.Overtaken:
            raise LeaseLost() from None


def logs(ctx: Context) -> AttemptLogs:
    """Return where attempts' logs are."""
    return AttemptLogs(ctx.settings.data_dir / "logs", ctx.settings.max_log_bytes)


def _locked(session: Session, attempt_id: str) -> Attempt:
    attempt = guards.locked(session, Attempt, attempt_id)
    if attempt is None:
        raise NotFound(f"There is no attempt {attempt_id!r}.")
    return attempt


def _extend(ctx: Context, session: Session, attempt: Attempt, job: Job, renewal: Renewal) -> bool:
    now = ctx.clock.now()
    values: dict[str, Any] = {
        "lease_until_at": now + timedelta(seconds=ctx.settings.lease_ttl_s),
        "step": renewal.step,
        "detail": renewal.detail,
        "progress": renewal.progress,
    }
    if attempt.state in LIVE_ATTEMPT and LIVE_ATTEMPT.index(attempt.state) < LIVE_ATTEMPT.index(renewal.state):
        note = {"step": renewal.step, "detail": renewal.detail}
        return attempts.move(
            session,
            now,
            attempt,
            renewal.fence,
            renewal.state,
            request_id=job.request_id,
            among=LIVE_ATTEMPT,
            note=note,
            **values,
        )
    touched = attempts.touch(session, attempt.id, renewal.fence, LIVE_ATTEMPT, **values)
    if touched and renewal.step != attempt.step:
        data = {"job_id": job.id, "number": attempt.number, "step": renewal.step, "detail": renewal.detail}
        events.record(session, now, "attempt", attempt.id, "step", job.request_id, **data)
    return touched


def _stored(session: Session, attempt_id: str, ref: ArtifactRef) -> ArtifactView | None:
    row = attempts.artifact(session, attempt_id, ref.name)
    if row is not None and row.sha256 != ref.sha256:
        raise Conflict(f"{ref.name} is stored already, with another content ({row.sha256[:12]}).")
    return artifact_view(row) if row is not None else None


def _replay(session: Session, attempt_id: str, sha256: str) -> ResultAnswer | None:
    """The answer that a result was given before; None if there was none."""
    attempt = guards.fresh(session, Attempt, attempt_id)
    if attempt is None:
        raise NotFound(f"There is no attempt {attempt_id!r}.")
    if attempt.result_sha256 is None:
        return None
    if attempt.result_sha256 != sha256:
        raise ResultConflict()
    launch = launches.of_attempt(session, attempt_id)
    accepted = attempt.state in (AttemptState.COMPLETED, AttemptState.FAILED)
    return ResultAnswer(accepted=accepted, replay=True, launch_id=launch.id if launch else None)


def _measure(ctx: Context, attempt_id: str, result: Result) -> ingest.Measured | None:
    """Compute a completed result's numbers, outside of any transaction."""
    if not isinstance(result.body, Completed):
        return None
    with ctx.store.read() as session:
        attempt = guards.fresh(session, Attempt, attempt_id)
        job = guards.fresh(session, Job, attempt.job_id) if attempt else None
        cell = guards.fresh(session, CellRow, job.cell_digest) if job else None
        stored = attempts.artifacts(session, [attempt_id])
    if cell is None:
        raise NotFound(f"There is no attempt {attempt_id!r}.")
    ingest.check_files(result, result.body.launch, stored)
    return ingest.compute(ctx, result.body.launch, Cell.model_validate(cell.body).workload)


def _count(
    ctx: Context, attempt_id: str, result: Result, sha256: str, measured: ingest.Measured | None
) -> ResultAnswer:
    """Let a result count, or raise Overtaken and leave no trace."""
    now = ctx.clock.now()
    with ctx.store.write() as session:
        held = outcomes.hold(session, attempt_id)
        replay = _replay(session, attempt_id, sha256)  # the same call may have come twice at once
        if replay is not None:
            return replay
        body = result.body
        failure = body.failure if isinstance(body, Failed) else measured.failure if measured else None
        steps = body.steps if isinstance(body, Failed) else body.launch.steps
        values: dict[str, Any] = {"result_sha256": sha256, "steps": [step.model_dump(mode="json") for step in steps]}
        if failure is not None:
            outcomes.burn(session, now, held, result.fence, AttemptState.FAILED, failure, **values)
        elif measured is not None:
            outcomes.complete(session, now, held, result.fence, **values)
        else:  # it did not count when it came, so that nothing was computed
            raise outcomes.Overtaken
        launch_id = ingest.store(session, now, held.job, held.attempt, measured) if measured else None
    return ResultAnswer(accepted=True, launch_id=launch_id)


def _keep_orphan(ctx: Context, attempt_id: str, result: Result, sha256: str) -> ResultAnswer:
    with ctx.store.write() as session:
        held = outcomes.hold(session, attempt_id)
        replay = _replay(session, attempt_id, sha256)
        if replay is not None:
            return replay
        if not attempts.keep_orphan(session, attempt_id, result.fence, sha256):
            raise LeaseLost()
        data = {"job_id": held.job.id, "result_sha256": sha256, "outcome": result.body.outcome}
        events.record(session, ctx.clock.now(), "attempt", attempt_id, "orphan_result", held.request.id, **data)
    return ResultAnswer(accepted=False)

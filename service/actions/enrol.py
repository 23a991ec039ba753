"""Runners: how they join, show that they live, are drained and revoked."""

from datetime import timedelta

from service.actions import presence
from service.actions.context import Caller, Context
from service.actions.pictures import runner_view
from service.actions.tokens import fresh_token, token_hash
from service.actions.views import EnrolmentTokenView, RunnerView
from service.contract.errors import Conflict, InvalidInput, NotFound, TokenInvalid
from service.contract.ids import new_id
from service.contract.lease import Directive, Enrolment, EnrolRequest, Heartbeat, HeartbeatAnswer
from service.domain.states import RunnerState, SlotState
from service.store import events, guards, runners, tokens
from service.store.engine import Session
from service.store.tables import EnrolmentToken, Runner, Slot

MAX_ENROLMENT_TTL_S = 7 * 24 * 3600.0


def create_enrolment_token(ctx: Context, caller: Caller, ttl_s: float = 3600.0) -> EnrolmentTokenView:
    """Return a token with which one runner may enrol, once, within ``ttl_s`` (at most a week). It is shown this once.

    Raises InvalidInput for a time out of bounds.
    """
    if not 1 <= ttl_s <= MAX_ENROLMENT_TTL_S:
        raise InvalidInput(f"An enrolment token lives 1 to {MAX_ENROLMENT_TTL_S:.0f} s, not {ttl_s:g}.")
    now = ctx.clock.now()
    token = fresh_token("bke")
    row = EnrolmentToken(
        id=new_id("enr"),
        sha256=token_hash(token),
        created_by=caller.name,
        created_at=now,
        expires_at=now + timedelta(seconds=ttl_s),
    )
    with ctx.store.write() as session:
        guards.insert(session, row)
        events.record(session, now, "enrolment_token", row.id, "created", by=caller.name)
    return EnrolmentTokenView(id=row.id, token=token, expires_at=row.expires_at)


def enrol(ctx: Context, token: str, request: EnrolRequest) -> Enrolment:
    """Make a runner known and return its id and token. A token that is refused for another reason stays good.

    Raises ProtocolUnsupported, TokenInvalid (unknown, spent or expired), Conflict if the name is taken.
    """
    presence.check_protocol(request.protocol_version)
    now = ctx.clock.now()
    own = fresh_token("bkr")
    runner = Runner(
        id=new_id("run"),
        name=request.name,
        hostname=request.hostname,
        state=RunnerState.ENROLLED,
        hardware=list(request.hardware),
        build_kinds=[kind.value for kind in request.build_kinds],
        protocol_version=request.protocol_version,
        agent_version=request.agent_version,
        token_sha256=token_hash(own),
        last4=own[-4:],
        created_at=now,
    )
    with ctx.store.write() as session:
        if tokens.use_enrolment(session, token_hash(token), now, runner.id) is None:
            raise TokenInvalid("The enrolment token is unknown, spent or expired; ask an operator for a new one.")
        if runners.find(session, request.name) is not None:
            raise Conflict(f"A runner named {request.name!r} is enrolled already; choose another name.")
        indices = range(request.slots)
        slots = [Slot(id=new_id("slt"), runner_id=runner.id, index=i, state=SlotState.FREE) for i in indices]
        guards.insert(session, runner, *slots)
        events.record(session, now, "runner", runner.id, runner.state, name=runner.name, slots=request.slots)
    return Enrolment(runner_id=runner.id, token=own)


def heartbeat(ctx: Context, runner_id: str, beat: Heartbeat) -> HeartbeatAnswer:
    """Note that a runner lives. If its process is a new one, the former one's attempts expire at once.

    Raises ProtocolUnsupported, TokenInvalid, Conflict (a newer process of this runner has taken over).
    """
    presence.check_protocol(beat.protocol_version)
    now = ctx.clock.now()
    with ctx.store.write() as session:
        runner = presence.arrive(session, now, runner_id, beat.boot_id)
        about = {"agent_version": beat.agent_version, "disk_free_bytes": beat.disk_free_bytes}
        runners.see(session, runner_id, now, protocol_version=beat.protocol_version, **about)
        presence.settle_state(session, now, runner, draining=beat.draining)
    directive = Directive.DRAIN if runner.drain_requested else Directive.CONTINUE
    return HeartbeatAnswer(directive=directive, interval_s=ctx.settings.heartbeat_s)


def list_runners(ctx: Context) -> list[RunnerView]:
    """Return every runner with its slots, by name."""
    with ctx.store.read() as session:
        rows = runners.everyone(session)
        slots = runners.slots(session, [row.id for row in rows])
        return [runner_view(row, [slot for slot in slots if slot.runner_id == row.id]) for row in rows]


def drain_runner(ctx: Context, caller: Caller, name_or_id: str, on: bool) -> RunnerView:
    """Let a runner take nothing new (what runs is finished), or let it work again. Raises NotFound, Conflict."""
    now = ctx.clock.now()
    with ctx.store.write() as session:
        runner = _locked(session, name_or_id)
        if runner.state is RunnerState.REVOKED:
            raise Conflict("The runner is revoked.")
        present = runner.state in (RunnerState.ONLINE, RunnerState.DRAINING)
        if runners.request_drain(session, now, runner.id, on, caller.name) and present:
            runners.move(session, now, runner.id, RunnerState.DRAINING if on else RunnerState.ONLINE)
        return _view(session, runner.id)


def revoke_runner(ctx: Context, caller: Caller, name_or_id: str) -> RunnerView:
    """End a runner's token at once and expire its attempts. Revoking it again changes nothing. Raises NotFound."""
    now = ctx.clock.now()
    with ctx.store.write() as session:
        runner = _locked(session, name_or_id)
        if runners.move(session, now, runner.id, RunnerState.REVOKED):
            events.record(session, now, "runner", runner.id, "revoked_by", by=caller.name)
            presence.expire_all(session, now, runner, "the runner was revoked")
        return _view(session, runner.id)


def _locked(session: Session, name_or_id: str) -> Runner:
    found = runners.find(session, name_or_id)
    runner = guards.locked(session, Runner, found.id) if found else None
    if runner is None:
        raise NotFound(f"There is no runner {name_or_id!r}.")
    return runner


def _view(session: Session, runner_id: str) -> RunnerView:
    runner = guards.fresh(session, Runner, runner_id)
    if runner is None:
        raise NotFound(f"There is no runner {runner_id!r}.")
    return runner_view(runner, runners.slots(session, [runner_id]))

"""A runner is heard of: which life of it this is, and what became of its former one's attempts."""

from datetime import datetime

from service.actions import outcomes
from service.contract import PROTOCOL_VERSION
from service.contract.errors import Conflict, ProtocolUnsupported, TokenInvalid
from service.contract.failures import Failure, FailureClass
from service.contract.lease import AttemptState
from service.domain.states import RunnerState
from service.store import attempts, guards, runners
from service.store.engine import Session
from service.store.tables import Runner


def check_protocol(version: int) -> None:
    """Raise ProtocolUnsupported unless the other side speaks this protocol."""
    if version != PROTOCOL_VERSION:
        raise ProtocolUnsupported(
            f"The runner speaks protocol version {version}, this controller {PROTOCOL_VERSION}: upgrade the older.",
            supported=PROTOCOL_VERSION,
        )


def arrive(session: Session, at: datetime, runner_id: str, boot_id: str) -> Runner:
    """Return a runner, locked and seen. If its process is a new one, the attempts of the former one expire at once.

    Raises TokenInvalid for a revoked runner, and Conflict for a process that a newer one has replaced.
    """
    runner = guards.locked(session, Runner, runner_id)
    if runner is None or runner.state is RunnerState.REVOKED:
        raise TokenInvalid()
    if runner.boot_id != boot_id:
        if boot_id in runners.former_boots(session, runner_id):
            raise Conflict("A newer process of this runner has taken over; this one must end.")
        expire_all(session, at, runner, "the runner was restarted")
        runners.reboot(session, at, runner, boot_id)
        settle_state(session, at, runner, draining=False)
    runners.see(session, runner_id, at)
    return guards.fresh(session, Runner, runner_id) or runner


def settle_state(session: Session, at: datetime, runner: Runner, *, draining: bool) -> RunnerState:
    """Bring a runner that is there into online or draining, and return which."""
    target = RunnerState.DRAINING if draining or runner.drain_requested else RunnerState.ONLINE
    if runner.state in (RunnerState.ENROLLED, RunnerState.OFFLINE):
        runners.move(session, at, runner.id, RunnerState.ONLINE)
    if runner.state is not target:
        runners.move(session, at, runner.id, target)
    return target


def expire_all(session: Session, at: datetime, runner: Runner, why: str) -> None:
    """End all live attempts of a runner as lost, without waiting for their leases. Late results may still count."""
    for attempt in attempts.live_of_runner(session, runner.id):
        held = outcomes.hold(session, attempt.id)
        outcomes.burn(session, at, held, held.attempt.fence, AttemptState.EXPIRED, lost(held.attempt.step, why))


def lost(step: str, why: str) -> Failure:
    """Return the failure of an attempt whose runner is gone."""
    return Failure(failure_class=FailureClass.RUNNER_LOST, step=step or "lease", message=f"Lost: {why}.")

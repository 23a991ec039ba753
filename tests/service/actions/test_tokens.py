"""Who may do what: tokens of users, runners, enrolments and attempts."""

import pytest
from sqlalchemy import text

from service.actions import enrol, tokens
from service.actions.context import Context
from service.contract.builds import BuildKind
from service.contract.errors import Conflict, InvalidInput, NotFound, ProtocolUnsupported, TokenInvalid
from service.contract.lease import EnrolRequest
from tests.clocks import SimulatedClock
from tests.workshop import ADA, RunnerLife, Workshop


def asking(name: str = "node", protocol_version: int = 1) -> EnrolRequest:
    return EnrolRequest(
        protocol_version=protocol_version,
        agent_version="1",
        name=name,
        hostname="h",
        hardware=["cpu"],
        build_kinds=[BuildKind.WHEELS],
        slots=1,
    )


def test_a_users_token_names_its_caller_until_it_is_revoked(ctx: Context) -> None:
    token = tokens.create_user_token(ctx, "ada", "operator")
    assert token.startswith("bku_")
    caller = tokens.authenticate_user(ctx, token)
    assert (caller.name, caller.role) == ("ada", "operator")
    assert tokens.revoke_user_token(ctx, "ada").revoked_at is not None
    assert tokens.revoke_user_token(ctx, "ada").revoked_at is not None
    with pytest.raises(TokenInvalid):
        tokens.authenticate_user(ctx, token)
    assert [view.name for view in tokens.list_user_tokens(ctx)] == ["ada"]
    with pytest.raises(Conflict):
        tokens.create_user_token(ctx, "ada", "viewer")
    with pytest.raises(NotFound):
        tokens.revoke_user_token(ctx, "bob")


@pytest.mark.parametrize(("name", "role"), [("ada", "king"), ("", "admin"), (" ", "admin"), ("x" * 101, "admin")])
def test_a_role_or_name_that_does_not_exist_is_refused(sqlite_ctx: Context, name: str, role: str) -> None:
    with pytest.raises(InvalidInput):
        tokens.create_user_token(sqlite_ctx, name, role)


def test_a_role_allows_what_those_before_it_allow() -> None:
    order = ("viewer", "submitter", "operator", "admin")
    assert order == tokens.ROLES
    for mine, role in enumerate(order):
        assert [tokens.allows(role, needed) for needed in order] == [mine >= other for other in range(4)]
    assert not tokens.allows("king", "viewer")


def test_an_enrolment_token_is_good_once_and_for_its_time(ctx: Context, clock: SimulatedClock) -> None:
    token = enrol.create_enrolment_token(ctx, ADA, ttl_s=60).token
    with pytest.raises(ProtocolUnsupported):
        enrol.enrol(ctx, token, asking(protocol_version=2))
    made = enrol.enrol(ctx, token, asking())
    assert tokens.authenticate_runner(ctx, made.token) == made.runner_id
    with pytest.raises(TokenInvalid):
        enrol.enrol(ctx, token, asking("another"))
    late = enrol.create_enrolment_token(ctx, ADA, ttl_s=60).token
    clock.advance(60)
    with pytest.raises(TokenInvalid):
        enrol.enrol(ctx, late, asking("another"))
    with pytest.raises(TokenInvalid):
        enrol.enrol(ctx, "bke_guess", asking("another"))
    with pytest.raises(InvalidInput):
        enrol.create_enrolment_token(ctx, ADA, ttl_s=10**9)


def test_a_name_that_is_taken_does_not_spend_the_token(ctx: Context) -> None:
    enrol.enrol(ctx, enrol.create_enrolment_token(ctx, ADA).token, asking())
    token = enrol.create_enrolment_token(ctx, ADA).token
    with pytest.raises(Conflict, match="node"):
        enrol.enrol(ctx, token, asking())
    assert enrol.enrol(ctx, token, asking("node-2")).runner_id


def test_an_attempts_token_opens_that_attempt_and_no_other(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit(blocks=2)
    first, second = workshop.work(runner, 0), workshop.work(runner, 1)
    tokens.check_attempt(workshop.ctx, first.attempt_id, first.token)
    for attempt_id, token in ((second.attempt_id, first.token), (first.attempt_id, "bka_x"), ("att_x", first.token)):
        with pytest.raises(TokenInvalid):
            tokens.check_attempt(workshop.ctx, attempt_id, token)
    enrol.revoke_runner(workshop.ctx, ADA, runner.id)
    with pytest.raises(TokenInvalid):
        tokens.check_attempt(workshop.ctx, first.attempt_id, first.token)


def test_no_token_can_be_read_from_the_database(workshop: Workshop) -> None:
    user = tokens.create_user_token(workshop.ctx, "ada", "admin")
    enrolment = enrol.create_enrolment_token(workshop.ctx, ADA).token
    own = enrol.enrol(workshop.ctx, enrolment, asking("fresh")).token
    with workshop.ctx.store.engine.connect() as connection:
        stored = "\n".join(
            str(row)
            for table in ("user_token", "enrolment_token", "runner", "event")
            for row in connection.execute(text(f"SELECT * FROM {table}"))
        )
    assert [secret for secret in (user, enrolment, own) if secret in stored] == []


@pytest.mark.parametrize("name", ["nobody", "run_0123456789abcdef"])
def test_an_unknown_runner_cannot_be_drained_or_revoked(sqlite_ctx: Context, name: str) -> None:
    with pytest.raises(NotFound):
        enrol.drain_runner(sqlite_ctx, ADA, name, on=True)
    with pytest.raises(NotFound):
        enrol.revoke_runner(sqlite_ctx, ADA, name)

"""Who may call: users by a token with a role, runners by their own, and each attempt by one that opens only it.

Tokens of users, runners and enrolments are 256 random bits, stored as SHA-256: that much entropy needs no slow hash.
An attempt's token is an HMAC of its id and fence under the controller's secret, and is stored nowhere.
"""

import hashlib
import hmac
import secrets

from service.actions.context import Caller, Context
from service.actions.views import UserTokenView
from service.contract.errors import Conflict, InvalidInput, NotFound, TokenInvalid
from service.contract.ids import new_id
from service.domain.states import RunnerState
from service.store import guards, runners, tokens
from service.store.tables import Attempt, Runner, UserToken

ROLES = ("viewer", "submitter", "operator", "admin")
"""Each may do what those before it may."""


def allows(role: str, needed: str) -> bool:
    """Return whether a role includes another; unknown roles include nothing."""
    return role in ROLES and ROLES.index(role) >= ROLES.index(needed)


def create_user_token(ctx: Context, name: str, role: str) -> str:
    """Return a fresh token for a name that has none. It is shown this once.

    Raises InvalidInput for an unknown role or a name out of bounds, Conflict for a name that was used before.
    """
    if role not in ROLES:
        raise InvalidInput(f"There is no role {role!r}; allowed are: {', '.join(ROLES)}.", allowed=list(ROLES))
    if not name.strip() or len(name) > 100:
        raise InvalidInput("A token's name has 1 to 100 characters.")
    token = fresh_token("bku")
    with ctx.store.write() as session:
        if tokens.user_by_name(session, name) is not None:
            raise Conflict(f"There is, or was, a token named {name!r}; choose another name.")
        row = UserToken(
            id=new_id("tok"),
            name=name,
            role=role,
            sha256=token_hash(token),
            last4=token[-4:],
            created_at=ctx.clock.now(),
        )
        guards.insert(session, row)
    return token


def list_user_tokens(ctx: Context) -> list[UserTokenView]:
    """Return every user's token, revoked ones too, oldest first; never the tokens themselves."""
    with ctx.store.read() as session:
        return [_view(row) for row in tokens.users(session)]


def revoke_user_token(ctx: Context, name_or_id: str) -> UserTokenView:
    """End a user's token at once. Revoking it again changes nothing. Raises NotFound."""
    with ctx.store.write() as session:
        row = tokens.user_by_name(session, name_or_id)
        if row is None:
            raise NotFound(f"There is no token named {name_or_id!r}.")
        tokens.revoke_user(session, row.id, ctx.clock.now())
        ended = tokens.user_by_name(session, row.id)
        return _view(ended or row)


def authenticate_user(ctx: Context, token: str) -> Caller:
    """Return whose token this is; raises TokenInvalid."""
    with ctx.store.read() as session:
        row = tokens.user_by_hash(session, token_hash(token))
    if row is None:
        raise TokenInvalid()
    return Caller(name=row.name, role=row.role)


def authenticate_runner(ctx: Context, token: str) -> str:
    """Return the id of the runner whose token this is; raises TokenInvalid, also for a revoked runner."""
    with ctx.store.read() as session:
        row = runners.by_token(session, token_hash(token))
    if row is None or row.state is RunnerState.REVOKED:
        raise TokenInvalid()
    return row.id


def attempt_token(ctx: Context, attempt_id: str, fence: int) -> str:
    """Return the token that opens one attempt and nothing else."""
    key = ctx.settings.secret.get_secret_value().encode()
    return "bka_" + hmac.new(key, f"{attempt_id}:{fence}".encode(), hashlib.sha256).hexdigest()


def check_attempt(ctx: Context, attempt_id: str, token: str) -> None:
    """Return if the token opens this attempt; raises TokenInvalid, also when the attempt's runner was revoked."""
    with ctx.store.read() as session:
        attempt = guards.fresh(session, Attempt, attempt_id)
        runner = guards.fresh(session, Runner, attempt.runner_id) if attempt else None
    if attempt is None or runner is None or runner.state is RunnerState.REVOKED:
        raise TokenInvalid()
    if not hmac.compare_digest(attempt_token(ctx, attempt_id, attempt.fence).encode(), token.encode()):
        raise TokenInvalid()


def fresh_token(prefix: str) -> str:
    """Return a new token: a prefix that says what it opens, and 256 random bits."""
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def token_hash(token: str) -> str:
    """Return what is stored of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def _view(row: UserToken) -> UserTokenView:
    return UserTokenView(
        id=row.id, name=row.name, role=row.role, last4=row.last4, created_at=row.created_at, revoked_at=row.revoked_at
    )

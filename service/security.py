"""Who may call: one dependency per kind of token. Every write route carries exactly one of them.

A user's token (``bku_``) has a role; a runner's (``bkr_``) opens the agent's calls; an attempt's (``bka_``) opens that
attempt and no other; an enrolment token (``bke_``) opens one enrolment. Tokens come as ``Authorization: Bearer TOKEN``.
"""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from service.actions import tokens
from service.actions.context import Caller, Context
from service.contract.errors import Forbidden, TokenInvalid, TokenMissing

_KINDS = {"bku_": "a user's", "bkr_": "a runner's", "bka_": "an attempt's", "bke_": "an enrolment"}


def context_of(request: Request) -> Context:
    """Return the context that the app was made with."""
    context = request.app.state.ctx
    assert isinstance(context, Context)
    return context


Ctx = Annotated[Context, Depends(context_of)]
_Credentials = Annotated[
    HTTPAuthorizationCredentials | None,
    Depends(HTTPBearer(auto_error=False, description="bku_ user, bkr_ runner, bka_ attempt, bke_ enrolment")),
]


def _token(credentials: HTTPAuthorizationCredentials | None, prefix: str) -> str:
    if credentials is None or not credentials.credentials:
        raise TokenMissing(
            f"This call needs {_KINDS[prefix]} token ({prefix}…): send 'Authorization: Bearer TOKEN'.",
            allowed=[f"{prefix}…"],
        )
    token = credentials.credentials
    if not token.startswith(prefix):
        other = _KINDS.get(token[:4])
        found = f"this is {other} token" if other else "this is none"
        raise TokenInvalid(f"This call needs {_KINDS[prefix]} token ({prefix}…); {found}.", allowed=[f"{prefix}…"])
    return token


@dataclass(frozen=True)
class RequireRole:
    """Dependency: a user's token of this role or a higher one. Yields the Caller; TokenMissing, TokenInvalid or
    Forbidden otherwise."""

    role: str

    def __post_init__(self) -> None:
        if self.role not in tokens.ROLES:
            raise ValueError(f"no such role: {self.role}")

    def __call__(self, ctx: Ctx, credentials: _Credentials) -> Caller:
        caller = tokens.authenticate_user(ctx, _token(credentials, "bku_"))
        if not tokens.allows(caller.role, self.role):
            raise Forbidden(
                f"This needs the role {self.role} or higher; the token {caller.name!r} has {caller.role}.",
                allowed=[role for role in tokens.ROLES if tokens.allows(role, self.role)],
            )
        return caller


Submitter = Annotated[Caller, Depends(RequireRole("submitter"))]
Operator = Annotated[Caller, Depends(RequireRole("operator"))]
Admin = Annotated[Caller, Depends(RequireRole("admin"))]


def runner_only(ctx: Ctx, credentials: _Credentials) -> str:
    """Dependency: a runner's token. Yields the runner's id."""
    return tokens.authenticate_runner(ctx, _token(credentials, "bkr_"))


def attempt_only(ctx: Ctx, attempt_id: str, credentials: _Credentials) -> None:
    """Dependency: the token of the attempt in the path, and of no other."""
    tokens.check_attempt(ctx, attempt_id, _token(credentials, "bka_"))


def enrolment_bearer(credentials: _Credentials) -> str:
    """Dependency: yields an enrolment token as sent; the enrol action checks and spends it in one transaction."""
    return _token(credentials, "bke_")


RunnerId = Annotated[str, Depends(runner_only)]
EnrolmentBearer = Annotated[str, Depends(enrolment_bearer)]

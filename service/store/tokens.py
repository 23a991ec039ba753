"""Users' tokens and enrolment tokens. Only hashes are stored: a token can't be read back."""

from collections.abc import Sequence
from datetime import datetime

from sqlmodel import Session, col, or_, select

from service.store import guards
from service.store.tables import EnrolmentToken, UserToken


def user_by_hash(session: Session, sha256: str) -> UserToken | None:
    """Return the user's token with this hash unless it was revoked."""
    query = select(UserToken).where(col(UserToken.sha256) == sha256, col(UserToken.revoked_at).is_(None))
    return session.exec(query).one_or_none()


def user_by_name(session: Session, name_or_id: str) -> UserToken | None:
    """Return a user's token by name or id, revoked or not."""
    query = select(UserToken).where(or_(col(UserToken.name) == name_or_id, col(UserToken.id) == name_or_id))
    return session.exec(query.execution_options(populate_existing=True)).one_or_none()


def users(session: Session) -> Sequence[UserToken]:
    """Return every user's token, oldest first."""
    return session.exec(select(UserToken).order_by(col(UserToken.created_at), col(UserToken.name))).all()


def revoke_user(session: Session, token_id: str, at: datetime) -> bool:
    """End a token, once; returns False if it had ended before."""
    return guards.update_one(
        session, UserToken, col(UserToken.id) == token_id, col(UserToken.revoked_at).is_(None), revoked_at=at
    )


def use_enrolment(session: Session, sha256: str, at: datetime, runner_id: str) -> EnrolmentToken | None:
    """Spend an enrolment token for a runner; None if it is unknown, spent or too old. It can be spent only once."""
    row = session.exec(select(EnrolmentToken).where(col(EnrolmentToken.sha256) == sha256)).one_or_none()
    if row is None:
        return None
    spent = guards.update_one(
        session,
        EnrolmentToken,
        col(EnrolmentToken.id) == row.id,
        col(EnrolmentToken.used_at).is_(None),
        col(EnrolmentToken.expires_at) > at,
        used_at=at,
        runner_id=runner_id,
    )
    return row if spent else None

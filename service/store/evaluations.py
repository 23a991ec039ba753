"""What launches answered to questions."""

from collections.abc import Collection, Sequence

from sqlmodel import Session, col, select

from service.store.tables import Evaluation


def of_launches(session: Session, launch_ids: Collection[str]) -> dict[str, Evaluation]:
    """Return the evaluations of some launches by the launch's id; a launch that was not asked has none."""
    query = select(Evaluation).where(col(Evaluation.launch_id).in_(launch_ids))
    return {row.launch_id: row for row in session.exec(query).all()}


def of_builds(session: Session, cell_digest: str, build_ids: Collection[str]) -> Sequence[Evaluation]:
    """Return the evaluations of some builds in a cell, oldest first, of whichever request; undefined ones too."""
    query = select(Evaluation).where(
        col(Evaluation.cell_digest) == cell_digest, col(Evaluation.build_id).in_(build_ids)
    )
    return session.exec(query.order_by(col(Evaluation.created_at), col(Evaluation.id))).all()

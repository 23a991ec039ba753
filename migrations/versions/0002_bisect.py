"""Bisects with their steps; jobs that ask for accuracy, and that avoid the slot where their server did not start."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "bisect",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("answer", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("aim", sa.JSON(), nullable=False),
        sa.Column("lineup", sa.JSON(), nullable=False),
        sa.Column("finding", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("last_step", sa.Integer(), nullable=False),
        sa.Column("seen", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["request_id"], ["request.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("request_id"),
    )
    op.create_index("ix_bisect_state", "bisect", ["state"], unique=False)
    op.create_table(
        "bisect_step",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("bisect_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("phase", sa.String(), nullable=True),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("orders", sa.JSON(), nullable=False),
        sa.Column("picture", sa.JSON(), nullable=False),
        sa.Column("forecast", sa.JSON(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("slot_s", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["bisect_id"], ["bisect.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("bisect_id", "number"),
    )
    op.create_index("ix_bisect_step_bisect_id", "bisect_step", ["bisect_id"], unique=False)
    op.add_column("build", sa.Column("dated_at", sa.BigInteger(), nullable=True))
    # Plain ADD COLUMN on both databases: rebuilding the table would break what refers to its rows.
    op.add_column("job", sa.Column("avoided_slot_id", sa.String(), nullable=True))
    op.add_column("job", sa.Column("evaluate", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    """Requests of bisects stay, with the launches that they made; what they searched for is lost."""
    op.drop_column("build", "dated_at")
    op.drop_column("job", "evaluate")
    op.drop_column("job", "avoided_slot_id")
    op.drop_table("bisect_step")
    op.drop_table("bisect")

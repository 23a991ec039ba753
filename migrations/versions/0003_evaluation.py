"""The accuracy of launches."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "evaluation",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("launch_id", sa.String(), nullable=False),
        sa.Column("build_id", sa.String(), nullable=False),
        sa.Column("cell_digest", sa.String(), nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=True),
        sa.Column("questions_sha256", sa.String(), nullable=True),
        sa.Column("shots_sha256", sa.String(), nullable=True),
        sa.Column("samples_sha256", sa.String(), nullable=True),
        sa.Column("n", sa.Integer(), nullable=True),
        sa.Column("strict_marks", sa.String(), nullable=True),
        sa.Column("flexible_marks", sa.String(), nullable=True),
        sa.Column("lm_eval_version", sa.String(), nullable=True),
        sa.Column("duration_s", sa.Float(), nullable=True),
        sa.Column("failure", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["build_id"], ["build.id"]),
        sa.ForeignKeyConstraint(["cell_digest"], ["cell.digest"]),
        sa.ForeignKeyConstraint(["launch_id"], ["launch.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("launch_id"),
    )
    op.create_index("ix_evaluation_build_id", "evaluation", ["build_id"], unique=False)
    op.create_index("ix_evaluation_cell_digest", "evaluation", ["cell_digest"], unique=False)


def downgrade() -> None:
    """Launches stay, with their files; their scores are lost, and can be computed again from those."""
    op.drop_table("evaluation")

"""The spine: tokens, runners, catalog, requests, jobs, attempts, launches, events."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    "user_token",
    "enrolment_token",
    "runner",
    "slot",
    "build",
    "recipe",
    "workload",
    "cell",
    "request",
    "job",
    "attempt",
    "artifact",
    "launch",
    "repetition",
    "event",
)
"""In the order in which they are made: each after those that it refers to."""


def upgrade() -> None:
    _keys()
    _runners()
    _catalog()
    _requests()
    _attempts()
    _evidence()
    _events()


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _keys() -> None:
    op.create_table(
        "user_token",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("last4", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sa.UniqueConstraint("sha256"),
    )
    op.create_table(
        "enrolment_token",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.Column("runner_id", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("sha256"),
    )


def _runners() -> None:
    op.create_table(
        "runner",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("hostname", sa.String(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("drain_requested", sa.Boolean(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=True),
        sa.Column("hardware", sa.JSON(), nullable=False),
        sa.Column("build_kinds", sa.JSON(), nullable=False),
        sa.Column("protocol_version", sa.Integer(), nullable=False),
        sa.Column("agent_version", sa.String(), nullable=False),
        sa.Column("token_sha256", sa.String(), nullable=False),
        sa.Column("last4", sa.String(), nullable=False),
        sa.Column("disk_free_bytes", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sa.UniqueConstraint("token_sha256"),
    )
    op.create_table(
        "slot",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("runner_id", sa.String(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["runner_id"],
            ["runner.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("runner_id", "index"),
    )


def _catalog() -> None:
    op.create_table(
        "build",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("source", sa.JSON(), nullable=False),
        sa.Column("registered_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name", "kind", "digest"),
    )
    op.create_index("ix_build_name", "build", ["name"], unique=False)
    op.create_table(
        "recipe",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("registered_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name", "digest"),
    )
    op.create_index("ix_recipe_name", "recipe", ["name"], unique=False)
    op.create_table(
        "workload",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("registered_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name", "digest"),
    )
    op.create_index("ix_workload_name", "workload", ["name"], unique=False)
    op.create_table(
        "cell",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("recipe_id", sa.String(), nullable=False),
        sa.Column("workload_id", sa.String(), nullable=False),
        sa.Column("hardware", sa.String(), nullable=False),
        sa.Column("ruler_version", sa.Integer(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["recipe_id"],
            ["recipe.id"],
        ),
        sa.ForeignKeyConstraint(
            ["workload_id"],
            ["workload.id"],
        ),
        sa.PrimaryKeyConstraint("digest"),
    )


def _requests() -> None:
    op.create_table(
        "request",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("submitter", sa.String(), nullable=False),
        sa.Column("cell_digest", sa.String(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("idempotency_key", sa.String(), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["cell_digest"],
            ["cell.digest"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("idempotency_key"),
    )
    op.create_index("ix_request_state", "request", ["state"], unique=False)
    op.create_table(
        "job",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("build_id", sa.String(), nullable=False),
        sa.Column("cell_digest", sa.String(), nullable=False),
        sa.Column("hardware", sa.String(), nullable=False),
        sa.Column("build_kind", sa.String(), nullable=False),
        sa.Column("block", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("slot_id", sa.String(), nullable=True),
        sa.Column("not_before_at", sa.BigInteger(), nullable=True),
        sa.Column("failure", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["build_id"],
            ["build.id"],
        ),
        sa.ForeignKeyConstraint(
            ["cell_digest"],
            ["cell.digest"],
        ),
        sa.ForeignKeyConstraint(
            ["request_id"],
            ["request.id"],
        ),
        sa.ForeignKeyConstraint(
            ["slot_id"],
            ["slot.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("request_id", "block", "position"),
    )
    op.create_index("ix_job_cell_digest", "job", ["cell_digest"], unique=False)
    op.create_index("ix_job_request_id", "job", ["request_id"], unique=False)
    op.create_index("job_queue", "job", ["state", "created_at"], unique=False)


def _attempts() -> None:
    op.create_table(
        "attempt",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("runner_id", sa.String(), nullable=False),
        sa.Column("slot_id", sa.String(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("lease_request_id", sa.String(), nullable=False),
        sa.Column("lease_until_at", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("progress", sa.Float(), nullable=True),
        sa.Column("failure", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("result_sha256", sa.String(), nullable=True),
        sa.Column("late", sa.Boolean(), nullable=False),
        sa.Column("log_bytes", sa.BigInteger(), nullable=False),
        sa.Column("steps", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["job.id"],
        ),
        sa.ForeignKeyConstraint(
            ["runner_id"],
            ["runner.id"],
        ),
        sa.ForeignKeyConstraint(
            ["slot_id"],
            ["slot.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "fence"),
        sa.UniqueConstraint("runner_id", "lease_request_id"),
    )
    op.create_index("ix_attempt_job_id", "attempt", ["job_id"], unique=False)
    op.create_index("ix_attempt_state", "attempt", ["state"], unique=False)
    op.create_table(
        "artifact",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"],
            ["attempt.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("attempt_id", "name"),
    )
    op.create_index("ix_artifact_attempt_id", "artifact", ["attempt_id"], unique=False)
    op.create_index("ix_artifact_sha256", "artifact", ["sha256"], unique=False)


def _evidence() -> None:
    op.create_table(
        "launch",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("build_id", sa.String(), nullable=False),
        sa.Column("cell_digest", sa.String(), nullable=False),
        sa.Column("runner_id", sa.String(), nullable=False),
        sa.Column("slot_id", sa.String(), nullable=False),
        sa.Column("block", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("validity", sa.String(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"],
            ["attempt.id"],
        ),
        sa.ForeignKeyConstraint(
            ["build_id"],
            ["build.id"],
        ),
        sa.ForeignKeyConstraint(
            ["cell_digest"],
            ["cell.digest"],
        ),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["job.id"],
        ),
        sa.ForeignKeyConstraint(
            ["request_id"],
            ["request.id"],
        ),
        sa.ForeignKeyConstraint(
            ["runner_id"],
            ["runner.id"],
        ),
        sa.ForeignKeyConstraint(
            ["slot_id"],
            ["slot.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("attempt_id"),
    )
    op.create_index("ix_launch_build_id", "launch", ["build_id"], unique=False)
    op.create_index("ix_launch_cell_digest", "launch", ["cell_digest"], unique=False)
    op.create_index("ix_launch_job_id", "launch", ["job_id"], unique=False)
    op.create_index("ix_launch_request_id", "launch", ["request_id"], unique=False)
    op.create_table(
        "repetition",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("launch_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("validity", sa.String(), nullable=False),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("metrics_schema", sa.Integer(), nullable=False),
        sa.Column("ruler_version", sa.Integer(), nullable=False),
        sa.Column("raw_log_sha256", sa.String(), nullable=False),
        sa.Column("counters", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["launch_id"],
            ["launch.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("launch_id", "number"),
    )
    op.create_index("ix_repetition_launch_id", "repetition", ["launch_id"], unique=False)
    # ### end Alembic commands ###


def _events() -> None:
    op.create_table(
        "event",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("subject_kind", sa.String(), nullable=False),
        sa.Column("subject_id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("event_subject", "event", ["subject_kind", "subject_id"], unique=False)
    op.create_index("ix_event_request_id", "event", ["request_id"], unique=False)

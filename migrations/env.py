"""What alembic runs a migration in: a connection that the caller opened, and the tables' metadata to compare with."""

from alembic import context
from sqlmodel import SQLModel

import service.store.tables  # noqa: F401  # declares the tables

connection = context.config.attributes.get("connection")
if connection is None:
    raise RuntimeError("migrations are run by service.store.migrations, which passes a connection")
context.configure(
    connection=connection,
    target_metadata=SQLModel.metadata,
    render_as_batch=True,
    compare_type=True,
    compare_server_default=True,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()

"""Alembic's entry: runs on the connection that service.db.migrate hands over."""

from alembic import context

from service.db.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()

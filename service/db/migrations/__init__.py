"""The schema's history. Each version runs one SQL file of ``sql/``, which is the readable schema."""

from pathlib import Path

import psycopg
from alembic import op

SQL = Path(__file__).with_name("sql")


def execute_script(name: str) -> None:
    """Run ``sql/name`` in the migration's transaction."""
    connection = op.get_bind().connection.driver_connection
    if not isinstance(connection, psycopg.Connection):
        raise TypeError(f"migrations need psycopg, got {connection!r}")
    connection.execute((SQL / name).read_bytes())  # bytes: many statements, no placeholders


def refuse_downgrade() -> None:
    """What has been spent cannot be unspent by dropping tables."""
    raise RuntimeError("the schema has no downgrade: restore a backup made before the upgrade")

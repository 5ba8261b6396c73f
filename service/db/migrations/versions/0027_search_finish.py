"""A search may be ended early, and what it has found promoted."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    execute_script("search_finish.sql")


def downgrade() -> None:
    refuse_downgrade()

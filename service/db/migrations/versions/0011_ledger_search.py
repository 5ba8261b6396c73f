"""The search's accounting mode, in the journal."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    execute_script("ledger_search.sql")


def downgrade() -> None:
    refuse_downgrade()

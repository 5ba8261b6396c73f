"""Tenant caps and the Rényi filter."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    execute_script("ledger_caps.sql")


def downgrade() -> None:
    refuse_downgrade()

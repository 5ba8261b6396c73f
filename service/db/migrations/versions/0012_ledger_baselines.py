"""Baselines without privacy in the journal, and caps that freeze a ledger."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    execute_script("ledger_baselines.sql")


def downgrade() -> None:
    refuse_downgrade()

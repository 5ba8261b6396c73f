"""The privacy ledger."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    execute_script("ledger.sql")


def downgrade() -> None:
    refuse_downgrade()

"""What a budget was opened for, in the journal."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    execute_script("ledger_registration.sql")


def downgrade() -> None:
    refuse_downgrade()

"""The pulse of the orchestrators."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    execute_script("operations.sql")


def downgrade() -> None:
    refuse_downgrade()

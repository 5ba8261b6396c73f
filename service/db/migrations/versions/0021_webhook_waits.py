"""A study that waits for a person again is a message again."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    execute_script("webhook_waits.sql")


def downgrade() -> None:
    refuse_downgrade()

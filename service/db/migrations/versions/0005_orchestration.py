"""Priorities, pauses, logs and webhooks."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    execute_script("orchestration.sql")


def downgrade() -> None:
    refuse_downgrade()

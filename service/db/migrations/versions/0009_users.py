"""Data of users, and of groups."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    execute_script("users.sql")


def downgrade() -> None:
    refuse_downgrade()

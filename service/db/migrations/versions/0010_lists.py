"""The best trial of each study, for lists that are ordered by it."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    execute_script("lists.sql")


def downgrade() -> None:
    refuse_downgrade()

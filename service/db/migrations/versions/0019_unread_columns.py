"""Which columns of a table no model reads."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    execute_script("unread_columns.sql")


def downgrade() -> None:
    refuse_downgrade()

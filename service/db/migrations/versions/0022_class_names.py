"""A dataset's classes may be named when it is registered."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    execute_script("class_names.sql")


def downgrade() -> None:
    refuse_downgrade()

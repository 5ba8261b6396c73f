"""Finals, promotions with their reasons, and plans that are one ladder."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    execute_script("finals.sql")


def downgrade() -> None:
    refuse_downgrade()

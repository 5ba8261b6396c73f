"""Which datasets let no private run begin that nobody has approved."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    execute_script("approval.sql")


def downgrade() -> None:
    refuse_downgrade()

"""Find what is old, and rows of the audit, without a look at all there are."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    execute_script("housekeeping.sql")


def downgrade() -> None:
    refuse_downgrade()

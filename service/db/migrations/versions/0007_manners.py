"""What users may edit of a study, and idempotency keys for every request that stores something."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    execute_script("manners.sql")


def downgrade() -> None:
    refuse_downgrade()

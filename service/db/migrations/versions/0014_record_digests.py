"""Which records datasets hold."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    execute_script("record_digests.sql")


def downgrade() -> None:
    refuse_downgrade()

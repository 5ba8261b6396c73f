"""Which studies rest between two attempts without a slot."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    execute_script("resting.sql")


def downgrade() -> None:
    refuse_downgrade()

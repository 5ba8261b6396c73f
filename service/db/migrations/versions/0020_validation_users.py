"""How many users the records of a validation split are of."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    execute_script("validation_users.sql")


def downgrade() -> None:
    refuse_downgrade()

"""What users write down about a study."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    execute_script("note.sql")


def downgrade() -> None:
    refuse_downgrade()

"""A run tells how far the features are that it computes before its trials or steps."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    execute_script("features.sql")


def downgrade() -> None:
    refuse_downgrade()

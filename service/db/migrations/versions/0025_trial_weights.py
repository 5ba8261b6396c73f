"""A trial that is charged, or of public data, leaves its weights, for the private run to begin with."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    execute_script("trial_weights.sql")


def downgrade() -> None:
    refuse_downgrade()

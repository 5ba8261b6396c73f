"""A trial of a search that is charged may go on from the weights of an earlier one."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    execute_script("trial_starts.sql")


def downgrade() -> None:
    refuse_downgrade()

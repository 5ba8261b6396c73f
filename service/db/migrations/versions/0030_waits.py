"""An attempt tells what it waits for while the cluster has no place for anything of it, and for how long it did."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    execute_script("waits.sql")


def downgrade() -> None:
    refuse_downgrade()

"""Studies without a search."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    execute_script("no_search.sql")


def downgrade() -> None:
    refuse_downgrade()

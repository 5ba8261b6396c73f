"""Find the studies of one dataset without a look at all there are."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    execute_script("studies_of_datasets.sql")


def downgrade() -> None:
    refuse_downgrade()

"""An attempt of a private run tells how many ranks it has, which may be fewer than the study asks for."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    execute_script("ranks.sql")


def downgrade() -> None:
    refuse_downgrade()

"""The control plane's tables."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0001"
down_revision = None


def upgrade() -> None:
    execute_script("control_plane.sql")


def downgrade() -> None:
    refuse_downgrade()

"""Tokens, tenants and the audit of what was asked for."""

from service.db.migrations import execute_script, refuse_downgrade

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    execute_script("access.sql")


def downgrade() -> None:
    refuse_downgrade()

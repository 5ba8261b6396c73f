"""What ``tan-cli db`` does: schema, backup and restore, in a process of its own beside the service."""

"""PostgreSQL: the embedded server, sessions, tables and their migrations."""

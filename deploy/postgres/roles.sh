#!/bin/sh
# Run once, by the entry point of the postgres image, when the database is made: the role that the service
# runs as. It owns nothing; the migration grants it what it needs, and the ledger only through functions.
set -eu

psql --no-psqlrc --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
  --set password="$(cat /run/secrets/postgres_app_password)" <<'SQL'
CREATE ROLE tan_app LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'password';
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
SQL

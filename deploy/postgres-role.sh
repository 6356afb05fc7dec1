#!/bin/sh
# The platform's role and its global database on a new server: it may create databases and is no superuser. As the server's
# superuser; DATABASE_PASSWORD_FILE has the role's password. deploy/compose.yaml runs it; docs/running-in-production.md does the same.
set -eu
password=$(cat "$DATABASE_PASSWORD_FILE")
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --set password="$password" --username "${POSTGRES_USER:-postgres}" --dbname postgres <<'SQL'
CREATE ROLE identity LOGIN CREATEDB PASSWORD :'password';
CREATE DATABASE identity OWNER identity TEMPLATE template0 ENCODING 'UTF8';
REVOKE ALL ON DATABASE identity FROM PUBLIC;
SQL

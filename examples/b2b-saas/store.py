"""The application's database: one SQLite file that only this system user can read."""

import os
import sqlite3
from contextlib import closing
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS company (
    slug TEXT PRIMARY KEY, name TEXT NOT NULL, tenant_id TEXT NOT NULL, issuer TEXT NOT NULL,
    client_id TEXT NOT NULL, client_secret TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS project (
    id TEXT PRIMARY KEY, company TEXT NOT NULL REFERENCES company, title TEXT NOT NULL, note TEXT NOT NULL,
    created_by TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS project_company ON project (company);
CREATE TABLE IF NOT EXISTS session (token_digest TEXT PRIMARY KEY, data TEXT NOT NULL, expires_at REAL NOT NULL);
"""


class Store:
    """Runs statements, each in a transaction of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        # It holds the secrets of the clients.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        with closing(self._connect()) as database:
            database.executescript(SCHEMA)

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=10)
        database.row_factory = sqlite3.Row
        return database

    def run(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        """Return the rows of a statement, or an empty list."""
        with closing(self._connect()) as database, database:
            return database.execute(statement, values).fetchall()

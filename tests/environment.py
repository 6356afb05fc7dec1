"""Loaded before Django's settings (pyproject.toml): gives each test process unique names on the shared servers."""

import gc
import os
import secrets

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
RUN = os.environ.setdefault("IDENTITY_TEST_RUN", secrets.token_hex(3))

os.environ["CACHE_KEY_PREFIX"] = f"test-{RUN}-{WORKER}"
os.environ["TENANT_DATABASE_PREFIX"] = f"t{RUN}{WORKER}_"
os.environ.setdefault("WEB_WORKERS", "2")
os.environ.setdefault("LOG_LEVEL", "WARNING")
os.environ.setdefault("HASHES_AT_ONCE", "2")
# SMS messages go to a file that the tests read.
os.environ.setdefault("SMS_BACKEND", "mfa.sms.gateway.FileGateway")
# Deleting a tenant makes no final backup; tests of backups set the days themselves.
os.environ.setdefault("DELETED_TENANT_BACKUP_DAYS", "0")
# Half of them may wait for a hash; tests of races send twenty requests at the same time, each in its own thread.
os.environ.setdefault("WEB_THREADS", "64")
# Tests of states want the rejection at once; those of the pause set a time themselves.
os.environ.setdefault("TENANT_PAUSE_WAIT_MS", "0")
DATABASE = f"identity_test_{RUN}_{WORKER}"
# What all processes of a run copy.
MIGRATED = f"identity_test_{RUN}_migrated"

# Modules and tests live as long as the process: collecting garbage among them took a seventh of the CPU.
gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage from now on, among the objects of the tests only."""
    gc.freeze()
    gc.set_threshold(5_000, 20, 50)
    gc.enable()

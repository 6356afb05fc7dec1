"""The files that take longest start first, so that no process works through one of them while the others have ended.

A pytest plugin. Within a file the order stays, and with it the use of the file's fixtures.
"""

import pytest

# More than ten seconds each, longest first.
LONGEST = (
    "tests/openapi/test_fuzz.py",
    "tests/machine/test_server.py",
    "tests/console/browser/test_working_days.py",
    "tests/console/test_every_url.py",
    "tests/mfa/webauthn/test_mutations.py",
    "tests/mfa/browser/test_demo.py",
    "tests/console/browser/test_sign_in.py",
    "tests/userflow/webhooks/test_delivering.py",
    "tests/machine/test_readme.py",
    "tests/registry/test_key_rotation.py",
    "tests/mfa/signin/test_races.py",
    "tests/identity_platform/test_task_queue.py",
    "tests/bench/test_bench.py",
    "tests/tenants/test_final_backups.py",
    "tests/console/test_assurance.py",
    "tests/machine/test_command_line.py",
    "tests/tenants/test_relocation.py",
    "tests/machine/test_log.py",
    "tests/machine/test_embedded.py",
    "tests/mfa/enrollment/test_ladder.py",
    "tests/machine/test_packages.py",
    "tests/console/tenants/test_browser.py",
    "tests/registry/test_fuzz.py",
    "tests/console/people/test_browser.py",
    "tests/tenants/test_fleet.py",
    "tests/mfa/webauthn/test_races.py",
    "tests/tenants/test_commands.py",
    "tests/userflow/prehijacking/test_matrix.py",
    "tests/tenants/test_pool.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {path: place for place, path in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONGEST)))

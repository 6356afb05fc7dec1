"""What do the console's lists cost with 10,000 tenants and, in one tenant, 100,000 people?

A look at a page is the whole stack (session, permissions, SQL, template) in this process, without the socket. The
tenants have rows in the global database only; the one with the people has a database too. `python -m bench.console
--help` says how to run it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from rich.console import Console
from rich.table import Table

from bench import home, report

TENANTS, PEOPLE, EVENTS = 10_000, 100_000, 500_000
# What the dashboard must stay under; the lists are held against it as well.
WANTED_MS = 200.0
HEADS = ("page", "statements: global, tenant", "ms: median", "95 %", f"< {WANTED_MS:.0f} ms")

_SHARED = (
    "INSERT INTO tenants_tenant (id, name, slug, settings, created_at, updated_at) SELECT gen_random_uuid(), 'Tenant ' ||"
    " n, 'tenant-' || n, '{{}}', now() - n * interval '1 hour', now() FROM generate_series(1, {tenants}) n",
    "INSERT INTO tenants_tenantdatabase (tenant_id, server_id, name, status, reason, schema_version, updated_at) SELECT"
    " id, (SELECT min(id) FROM tenants_databaseserver), 'known_' || slug, 'active', '', 'x', now() FROM tenants_tenant"
    " WHERE slug ~ '^tenant-'",
    "INSERT INTO console_tenantfigures (tenant_id, users, active_users, protected_users, factors, database_bytes,"
    " check_ms, failure, checked_at, collected_at, last_event_id) SELECT id, 1000, 900, 500,"
    """ '{{"totp": 400, "webauthn": 300}}', 10000000, random() * 50, '', now(), now(), 0 FROM tenants_tenant""",
    "INSERT INTO console_tenantday (tenant_id, day, sign_ins, failures, new_users, registry_calls, registry_refused)"
    " SELECT id, current_date - d, 100, 3, 1, 50, 1 FROM tenants_tenant, generate_series(0, 29) d",
    "INSERT INTO tenants_datakey (owner, ring_key_id, wrapped, created_at) SELECT id::text, 'k1', '', now() FROM"
    " tenants_tenant ON CONFLICT DO NOTHING",
    "INSERT INTO userflow_adminuser (id, username, email, email_key, first_name, last_name, password, tenant_id, active,"
    " mfa_methods, created_at, updated_at) SELECT gen_random_uuid(), 'admin-' || n, 'admin-' || n || '@example.com',"
    " 'admin-' || n || '@example.com', 'Ann', 'Admin', '', id, true, '[]', now() - n * interval '1 minute', now()"
    " FROM (SELECT id, row_number() OVER () AS n FROM tenants_tenant) t",
    "INSERT INTO userflow_adminuser_roles (adminuser_id, adminrole_id) SELECT u.id, r.id FROM userflow_adminuser u,"
    " userflow_adminrole r WHERE r.name = 'tenant-admin' AND u.tenant_id IS NOT NULL ON CONFLICT DO NOTHING",
    "INSERT INTO userflow_admininvitation (id, email, email_key, roles, invited_by_kind, invited_by_id, token_digest,"
    " created_at, expires_at, tenant_id) SELECT gen_random_uuid(), slug || '@example.com', slug || '@example.com',"
    """ '["tenant-admin"]', 'operator', gen_random_uuid(), sha256(slug::bytea), now(), now() + interval '7 days', id"""
    " FROM tenants_tenant",
    "INSERT INTO userflow_client (id, tenant_id, name, type, active, is_default, tags, scopes, redirect_uris,"
    " self_registration, generation, created_at, updated_at) SELECT gen_random_uuid(), id, 'Client ' || n, 'public',"
    " true, false, '[]', '[]', '[]', false, 1, now() - n * interval '1 minute', now() FROM tenants_tenant,"
    " generate_series(1, 3) n",
    "INSERT INTO registry_service (id, tenant_id, name, description, type, status, base_url, api_version, metadata,"
    " created_at, updated_at) SELECT gen_random_uuid(), id, 'Service ' || n, '', 'payment', 'active',"
    " 'https://api.example.com', '', '{{}}', now() - n * interval '1 minute', now() FROM tenants_tenant,"
    " generate_series(1, 10) n",
    "INSERT INTO console_job (id, kind, tenant_id, params, state, lines, reason, created_at, seen_at, ended_at) SELECT"
    " gen_random_uuid(), 'backup', id, '{{}}', 'done', '[]', '', now(), now(), now() FROM tenants_tenant",
    "INSERT INTO audit_platformevent (action, outcome, actor_kind, actor_id, target_kind, target_id, address,"
    " request_id, details, tenant_id) SELECT 'service.created', 'success', 'admin', id::text, 'service', id::text,"
    " '10.0.0.1', '', '{{}}', id FROM tenants_tenant, generate_series(1, {events} / {tenants})",
)
_OWN = (
    "INSERT INTO userflow_enduser (id, email, email_key, name, active, provider, client_id, password, metadata,"
    " mfa_methods, created_at, updated_at) SELECT gen_random_uuid(), 'p' || n || '@crowd.example', 'p' || n ||"
    " '@crowd.example', 'Person ' || md5(n::text), n % 10 > 0, CASE n % 4 WHEN 0 THEN 'entra_id' ELSE 'local' END,"
    " '{client}', '', '{{}}', CASE n % 5 WHEN 0 THEN '[\"totp\"]'::jsonb ELSE '[]'::jsonb END,"
    " now() - n * interval '1 minute', now() FROM generate_series(1, {people}) n",
    "INSERT INTO userflow_rolebinding (user_id, role_id, created_at) SELECT u.id, r.id, now() FROM userflow_enduser u,"
    " userflow_role r WHERE r.name = 'user' ON CONFLICT DO NOTHING",
    "INSERT INTO userflow_group (id, name, description, created_at, updated_at) SELECT gen_random_uuid(), 'Group ' || n,"
    " '', now(), now() FROM generate_series(1, 1000) n",
    "INSERT INTO userflow_groupmembership (user_id, group_id, created_at) SELECT u.id, g.id, now() FROM userflow_enduser"
    " u, userflow_group g WHERE g.name = 'Group 1'",
    "INSERT INTO userflow_endusersession (id, user_id, client_id, amr, acr, auth_time, created_at, last_used_at,"
    " expires_at, address, user_agent, end_reason)"
    " SELECT gen_random_uuid(), id, client_id, '[\"pwd\"]', 'aal1', now(), now(), now(), now() + random() *"
    " interval '30 days', '10.0.0.1', 'Browser', '' FROM userflow_enduser",
    "INSERT INTO userflow_enduserinvitation (id, email, email_key, roles, invited_by_kind, invited_by_id, token_digest,"
    " created_at, expires_at, client_id) SELECT gen_random_uuid(), n || '@new.example', n || '@new.example', '[]',"
    " 'admin', gen_random_uuid(), sha256(n::text::bytea), now(), now() + interval '7 days', '{client}'"
    " FROM generate_series(1, {people} / 10) n",
    "INSERT INTO audit_tenantevent (action, outcome, actor_kind, actor_id, target_kind, target_id, address, request_id,"
    " details) SELECT 'signin.succeeded', 'success', 'end_user', id::text, 'user', id::text, '10.0.0.1', '', '{{}}'"
    " FROM userflow_enduser, generate_series(1, 5)",
    "INSERT INTO userflow_webhookmessage (endpoint_id, message_id, event, body, status, settled_at, last_error)"
    " SELECT '{endpoint}', 'msg_' || n, 'end_user.updated', '{{}}', CASE n % 100 WHEN 0 THEN 'dead' ELSE 'delivered' END,"
    " now(), '' FROM generate_series(1, {people}) n",
)


def main() -> None:
    """Fill, measure, print the table and write it to bench/results/console.{json,md}."""
    parser = argparse.ArgumentParser(prog="bench.console", description="The console's lists on a large platform.")
    parser.add_argument("--looks", type=int, default=20, help="looks at each page (20)")
    parser.add_argument("--smoke", action="store_true", help="tiny data: shows that it works")
    parser.add_argument("--results", type=Path, default=home.ROOT / "bench" / "results", help="where the files go")
    options = parser.parse_args()
    sizes = {"tenants": 10, "people": 50, "events": 50} if options.smoke else _sizes()
    var = Path(os.environ.get("IDENTITY_VAR") or home.ROOT / "var").resolve()
    console = Console()
    with home.opened(var / "bench-console", keep=False) as own:
        os.environ.update(own.environment)
        _prepare()
        about = report.machine(own) | sizes
        with console.status("") as status:
            rows = measure(sizes, 2 if options.smoke else options.looks, lambda what: status.update(what))
        about["load_average_after"] = report.load_average()
    table = Table(*HEADS, title="The console's lists")
    for row in rows:
        table.add_row(*row.cells())
    console.print(table)
    _write(options.results, about, rows)
    console.print(f"Written to {options.results / 'console.json'} and console.md")


def _sizes() -> dict[str, int]:
    return {"tenants": TENANTS, "people": PEOPLE, "events": EVENTS}


def _prepare() -> None:
    import django
    from django.core.management import call_command

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "identity_platform.settings")
    os.environ["LOG_LEVEL"] = "ERROR"
    django.setup()
    with contextlib.redirect_stdout(io.StringIO()):
        call_command("prepare")


class Looks:
    """What the looks at one page have cost."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.statements: tuple[int, int] = (0, 0)
        self.ms: list[float] = []

    def cells(self) -> list[str]:
        """A row of the table."""
        median, late = statistics.median(self.ms), sorted(self.ms)[int(len(self.ms) * 0.95)]
        met = "yes" if median < WANTED_MS else "no"
        return [self.name, f"{self.statements[0]}, {self.statements[1]}", f"{median:.0f}", f"{late:.0f}", met]


def measure(sizes: dict[str, int], looks: int, say: Callable[[str], None]) -> list[Looks]:
    """Look at every list; the first look warms up, the second one is counted, the others are timed."""
    from django.test import Client

    pages = _fill(sizes, say)
    browser = Client(headers={"Host": "127.0.0.1"})
    _sign_in(browser)
    answer = browser.post("/admin/inside/", {"tenant": pages.pop("")}, secure=True)
    if answer.status_code != 302:
        raise RuntimeError(f"The tenant cannot be chosen: {answer.status_code}")
    found = []
    for name, path in pages.items():
        say(name)
        row = Looks(name)
        _look(browser, path)
        with _counting() as counts:
            _look(browser, path)
        row.statements = counts["default"], counts["tenant"]
        row.ms = [_look(browser, path) for _ in range(looks)]
        found.append(row)
    return found


def _look(browser: Any, path: str) -> float:
    began = time.perf_counter()
    answer = browser.get(path, secure=True)
    took = (time.perf_counter() - began) * 1000
    if answer.status_code != 200:
        raise RuntimeError(f"{path} answered {answer.status_code}: {answer.headers}")
    return took


@contextlib.contextmanager
def _counting() -> Iterator[dict[str, int]]:
    from django.db import connections

    counts = {"default": 0, "tenant": 0}

    def counter(alias: str) -> Any:
        def run(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            counts[alias] += 1
            return execute(sql, params, many, context)

        return run

    with (
        connections["default"].execute_wrapper(counter("default")),
        connections["tenant"].execute_wrapper(counter("tenant")),
    ):
        yield counts


def _sign_in(browser: Any) -> None:
    from bench.world import PASSWORD
    from userflow.admins.actions import create_admin_user

    name = f"bench-{uuid4().hex[:8]}"
    create_admin_user(tenant_id=None, username=name, email=f"{name}@example.com", password=PASSWORD)
    answer = browser.post("/admin/login/", {"username": name, "password": PASSWORD}, secure=True)
    if answer.headers.get("Location") != "/admin/":
        raise RuntimeError(f"The console does not let an operator in: {answer.status_code}")


def _fill(sizes: dict[str, int], say: Callable[[str], None]) -> dict[str, str]:
    from django.db import connection, connections
    from django.utils.timezone import now

    from console.metrics import queries
    from tenants.entering.context import in_tenant, tenant_atomic
    from userflow.tenants.actions import open_tenant
    from userflow.webhooks.actions import create_endpoint

    made = open_tenant(name="Crowd", slug="crowd")
    tenant_id: UUID = made.tenant.pk
    endpoint, _ = create_endpoint(tenant_id=tenant_id, url="https://93.184.216.34/hooks", events=["*"])
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
        for number, statement in enumerate(_SHARED):
            say(f"the platform's rows, {number + 1} of {len(_SHARED)}")
            cursor.execute(statement.format(**sizes))
        cursor.execute("VACUUM (ANALYZE)")
        cursor.execute("RESET statement_timeout")
    queries.sum_days(now().date().replace(day=1))
    with in_tenant(tenant_id), connections["tenant"].cursor() as cursor:
        with tenant_atomic():
            cursor.execute("SET LOCAL statement_timeout = 0")
            for number, statement in enumerate(_OWN):
                say(f"the tenant's rows, {number + 1} of {len(_OWN)}")
                cursor.execute(statement.format(**sizes, client=made.client_id, endpoint=endpoint.pk))
        with tenant_atomic():
            cursor.execute("SET LOCAL statement_timeout = 0")
            cursor.execute("ANALYZE")
        cursor.execute("SELECT id FROM userflow_group WHERE name = 'Group 1'")
        group = cursor.fetchone()[0]
        cursor.execute("SELECT id FROM userflow_role WHERE name = 'user'")
        role = cursor.fetchone()[0]
    return {"": str(tenant_id), **_pages(tenant_id, endpoint.pk, group, role)}


def _pages(tenant_id: UUID, endpoint: UUID, group: UUID, role: UUID) -> dict[str, str]:
    """Every list of the console, with its searches and filters."""
    from django.urls import reverse

    def of(name: str, *args: object, query: str = "") -> str:
        return reverse(f"admin:{name}", args=args) + query

    return {
        "dashboard": of("index"),
        "tenants": of("tenants_tenant_changelist"),
        "tenants, search": of("tenants_tenant_changelist", query="?q=tenant-77"),
        "tenants, filtered": of("tenants_tenant_changelist", query="?state=active&schema=behind"),
        "tenants, by size": of("tenants_tenant_changelist", query="?o=-6"),
        "tenant": of("tenants_tenant_change", tenant_id),
        "jobs": of("console_job_changelist"),
        "choose a tenant": of("choose_tenant", query="?q=tenant-7"),
        "admin users": of("userflow_adminuser_changelist"),
        "admin users, search": of("userflow_adminuser_changelist", query="?q=admin-77"),
        "admin invitations": of("userflow_admininvitation_changelist"),
        "admin roles": of("userflow_adminrole_changelist"),
        "admin role": of("userflow_adminrole_change", _admin_role()),
        "clients": of("userflow_client_changelist"),
        "services": of("registry_service_changelist"),
        "services, search": of("registry_service_changelist", query="?q=Service 7"),
        "audit trail": of("audit_trail"),
        "audit trail, of an action": of("audit_trail", query="?action=service.created"),
        "audit trail, of last year": of("audit_trail", query="?until=2020-01-01T00:00"),
        "database servers": of("servers"),
        "signing keys": of("signing_keys"),
        "encryption keys": of("encryption_keys"),
        "end users": of("userflow_enduser_changelist"),
        "end users, page 100": of("userflow_enduser_changelist", query="?p=100"),
        "end users, address": of("userflow_enduser_changelist", query="?q=p777%40crowd"),
        "end users, part of a name": of("userflow_enduser_changelist", query="?q=abc1"),
        "end users, no result": of("userflow_enduser_changelist", query="?q=no-such-user"),
        "end users, filtered": of("userflow_enduser_changelist", query="?active=no&provider=entra_id&factor=totp"),
        "end users, counts of filters": of("userflow_enduser_changelist", query="?_facets=True"),
        "groups": of("userflow_group_changelist"),
        "group with all": of("group", group),
        "roles": of("userflow_role_changelist"),
        "role with all": of("role", role),
        "sessions": of("userflow_endusersession_changelist"),
        "sessions of one user": of("userflow_endusersession_changelist", query="?q=p777%40crowd"),
        "invitations": of("invitations"),
        "trail of the tenant": of("tenant_trail"),
        "trail, of an action": of("tenant_trail", query="?action=signin.succeeded"),
        "trail, of a person": of("tenant_trail", query="?person=p1@crowd.example"),
        "webhooks": of("webhooks"),
        "messages": of("webhook", endpoint),
        "messages, dead letters": of("webhook", endpoint, query="?status=dead"),
        "directories": of("directories"),
    }


def _admin_role() -> int:
    from userflow.accounts.models import AdminRole

    return AdminRole.objects.get(name="tenant-admin").pk


def _write(folder: Path, about: dict[str, Any], rows: list[Looks]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    figures = {row.name: {"statements": row.statements, "ms": [round(ms, 1) for ms in row.ms]} for row in rows}
    content = json.dumps({"about": about, "pages": figures}, indent=1)
    (folder / "console.json").write_text(content + "\n", encoding="utf-8")
    lines = [
        f"# The console with {about['tenants']:,} tenants and, in one of them, {about['people']:,} people",
        "",
        f"`python -m bench.console`, {len(rows[0].ms)} looks at each page by an operator; commit {about['commit']}, "
        f"{about['cores']} cores, PostgreSQL {about['postgresql']}, Python {about['python']}, load average "
        f"{about['load_average_before'][0]} before and {about['load_average_after'][0]} after.",
        "",
        "| " + " | ".join(HEADS) + " |",
        "|" + "---|" * len(HEADS),
        *["| " + " | ".join(row.cells()) + " |" for row in rows],
    ]
    (folder / "console.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Metrics of the whole platform: tenants, database servers, spare databases, tasks. Eight statements a scrape."""

from collections.abc import Iterator

from django.db.models import Count, Q
from django.utils.timezone import now
from prometheus_client.metrics_core import Metric

from identity_platform import task_queue
from identity_platform.api.metrics import gauge
from identity_platform.audit.models import PlatformEvent
from tenants.backend.leases import uses
from tenants.database_servers import fences
from tenants.entering.schema import schema_version
from tenants.models import DatabaseServer, ServerHealth, TenantDatabase, WarmDatabase
from tenants.states import State


def collect() -> Iterator[Metric]:
    """Yield them. Queries the global database only."""
    yield gauge(
        "identity_installation_fenced", "1 if it was restored and not adopted.", [], [([], bool(fences.reasons()))]
    )
    yield from _tenants()
    yield from _servers()
    yield from _tasks()
    yield from _backup()


def _tenants() -> Iterator[Metric]:
    current, states, behind = schema_version(), dict.fromkeys(State, 0), 0
    rows = TenantDatabase.objects.exclude(status=State.DELETED).values_list("status", "schema_version")
    for status, version, number in rows.annotate(Count("pk")).order_by():
        states[State(status)] += number
        behind += number if version != current else 0
    del states[State.DELETED]
    yield gauge("identity_tenants", "Tenants by state.", ["state"], (([state], states[state]) for state in states))
    yield gauge("identity_tenants_behind", "Tenants without this release's schema.", [], [([], behind)])


def _servers() -> Iterator[Metric]:
    taken = Count("databases", filter=~Q(databases__status=State.DELETED))
    known = list(DatabaseServer.objects.annotate(taken=taken).order_by("name"))
    spare = dict(WarmDatabase.objects.filter(ready=True).values_list("server").annotate(Count("pk")).order_by())
    health = {each.server_id: each for each in ServerHealth.objects.all()}
    moment = now()
    yield gauge("identity_server_tenants", "Tenants on the server.", ["server"], (([s], s.taken) for s in known))
    yield gauge("identity_server_capacity", "Tenants it takes at most.", ["server"], (([s], s.capacity) for s in known))
    yield gauge(
        "identity_server_accepts_tenants",
        "1 if it takes new tenants.",
        ["server"],
        (([s], s.accepts_tenants) for s in known),
    )
    yield gauge(
        "identity_spare_databases", "Spare databases that wait.", ["server"], (([s], spare.get(s.pk, 0)) for s in known)
    )
    checked = [(server, health[server.pk]) for server in known if server.pk in health]
    yield gauge(
        "identity_server_up", "1 if it responded when checked.", ["server"], (([s], h.responds) for s, h in checked)
    )
    yield gauge(
        "identity_server_check_age_seconds",
        "Time since that check.",
        ["server"],
        (([s], (moment - h.checked_at).total_seconds()) for s, h in checked),
    )
    yield from _leases()
    responding = [(s, h) for s, h in checked if h.responds]
    for name, text, field in (
        ("identity_server_connect_seconds", "How long that connection took.", "seconds"),
        ("identity_server_connections", "Open connections, the platform's and others.", "connections"),
        ("identity_server_max_connections", "How many may be open.", "max_connections"),
    ):
        yield gauge(name, text, ["server"], (([s], getattr(h, field) or 0) for s, h in responding))


def _leases() -> Iterator[Metric]:
    use = list(uses().values())
    yield gauge(
        "identity_server_leased_connections",
        "Connections leased by the platform's processes.",
        ["server"],
        (([each.server], each.taken) for each in use),
    )
    yield gauge(
        "identity_server_lease_limit",
        "How many they can lease.",
        ["server"],
        (([each.server], each.limit) for each in use),
    )


def _tasks() -> Iterator[Metric]:
    queues = task_queue.backlogs()
    yield gauge("identity_tasks_waiting", "Due tasks that wait.", ["queue"], (([q.queue], q.waiting) for q in queues))
    yield gauge("identity_tasks_running", "Tasks that run.", ["queue"], (([q.queue], q.running) for q in queues))
    yield gauge("identity_workers", "Worker processes alive.", [], [([], task_queue.living_workers().count())])


def _backup() -> Iterator[Metric]:
    # A backup of named tenants is none of the others.
    newest = PlatformEvent.objects.filter(action="backup.written", details__whole=True).first()
    if newest is not None:
        yield gauge(
            "identity_backup_timestamp_seconds",
            "When a backup of all tenants last ended.",
            [],
            [([], newest.at.timestamp())],
        )
        failed = newest.details.get("failed", 0)
        yield gauge(
            "identity_backup_failed_tenants", "Tenants that it could not back up.", [], [([], float(str(failed)))]
        )

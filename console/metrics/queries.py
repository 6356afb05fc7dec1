import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, cast
from uuid import UUID

from django.db import connections

from identity_platform.postgresql.statements import execute, fetch_row, fetch_rows
from registry.limits import OPERATORS
from tenants.entering.context import tenant_atomic
from tenants.entering.target import TENANT_ALIAS

# The number of events that one statement counts at most.
PIECE: Final = 100_000
STATEMENT_SECONDS: Final = 60

# Events are counted in the order of their ids, up to the first one that is not settled, so that the next collection
# finds all that follow.
_COLLECT: Final = """
WITH fresh AS MATERIALIZED (
  SELECT id, at, action, outcome FROM audit_tenantevent WHERE id > %(last)s ORDER BY id LIMIT %(piece)s
), edge AS (
  SELECT coalesce(min(id) FILTER (WHERE at > now() - make_interval(secs => %(settled)s)) - 1, max(id), %(last)s) AS upto
  FROM fresh
), days AS (
  SELECT (at AT TIME ZONE 'UTC')::date AS day,
    count(*) FILTER (WHERE action = 'signin.succeeded') AS sign_ins,
    count(*) FILTER (WHERE outcome = 'refused') AS failures
  FROM fresh, edge
  WHERE id <= upto AND (action = 'signin.succeeded'
    OR (outcome = 'refused' AND action IN ('signin.refused', 'signin.address_not_proven', 'factor.refused')))
  GROUP BY 1
)
SELECT people.users, people.active, people.protected,
  (SELECT coalesce(json_object_agg(method, total), '{}') FROM (
     SELECT method, count(*) AS total FROM userflow_enduser, jsonb_array_elements_text(mfa_methods) AS method
     WHERE active GROUP BY 1) AS by_method),
  (SELECT coalesce(json_object_agg(day, total), '{}') FROM (
     SELECT (created_at AT TIME ZONE 'UTC')::date AS day, count(*) AS total FROM userflow_enduser
     WHERE created_at >= %(day)s::date::timestamp AT TIME ZONE 'UTC' GROUP BY 1) AS joined),
  (SELECT coalesce(json_object_agg(day, json_build_object('sign_ins', sign_ins, 'failures', failures)), '{}') FROM days),
  (SELECT upto FROM edge),
  (SELECT count(*) FROM fresh),
  (SELECT count(*) FROM userflow_webhookmessage WHERE status = 'pending'),
  (SELECT count(*) FROM userflow_webhookendpoint e WHERE e.enabled AND (e.paused_until IS NULL OR e.paused_until < now())
    AND (SELECT m.next_attempt_at FROM userflow_webhookmessage m
      WHERE m.endpoint_id = e.id AND m.status = 'pending' ORDER BY m.id LIMIT 1) < now() - interval '5 minutes'),
  (SELECT count(*) FROM userflow_webhookendpoint WHERE client_id IS NULL
    AND (enabled AND failing_since < now() - interval '15 minutes' OR NOT enabled AND disabled_reason IN ('gone', 'failing'))),
  (SELECT count(*) FROM audit_tenantevent
    WHERE id > coalesce((SELECT to_id FROM audit_tenantseal ORDER BY number DESC LIMIT 1), 0)),
  (SELECT count(*) FROM userflow_tenantmail WHERE status = 'pending'),
  (SELECT count(*) FROM userflow_tenantmail WHERE status = 'pending' AND created_at < now() - interval '15 minutes'),
  (SELECT count(*) FROM userflow_tenantmail WHERE settled_at > now() - interval '1 day')
FROM (SELECT count(*) AS users, count(*) FILTER (WHERE active) AS active,
    count(*) FILTER (WHERE active AND mfa_methods <> '[]') AS protected
  FROM userflow_enduser) AS people
"""

_FACTORS: Final = """
SELECT key, sum(value::bigint)::bigint FROM console_tenantfigures, jsonb_each_text(factors)
WHERE %(tenant)s::uuid IS NULL OR tenant_id = %(tenant)s GROUP BY key
"""

_ADD_TO_DAYS: Final = """
INSERT INTO console_tenantday AS d (tenant_id, day, sign_ins, failures, new_users, registry_calls, registry_refused)
SELECT %(tenant)s, key::date, coalesce((value->>'sign_ins')::bigint, 0), coalesce((value->>'failures')::bigint, 0),
  coalesce((value->>'new_users')::bigint, 0), 0, 0
FROM jsonb_each(%(days)s::jsonb)
ON CONFLICT (tenant_id, day) DO UPDATE SET
  sign_ins = d.sign_ins + excluded.sign_ins,
  failures = d.failures + excluded.failures,
  new_users = CASE WHEN d.day >= %(counted_from)s THEN excluded.new_users ELSE d.new_users END
"""

# Existing tenants only: counters of today must not create rows for a tenant that was deleted meanwhile.
_RAISE_DAYS: Final = """
INSERT INTO console_tenantday AS d (tenant_id, day, sign_ins, failures, new_users, registry_calls, registry_refused)
SELECT t.id, %(day)s, 0, 0, 0, coalesce((%(calls)s::jsonb->>t.id::text)::bigint, 0),
  coalesce((%(refused)s::jsonb->>t.id::text)::bigint, 0)
FROM tenants_tenant t JOIN tenants_tenantdatabase b ON b.tenant_id = t.id AND b.status <> 'deleted'
WHERE t.id::text IN (SELECT jsonb_object_keys(%(calls)s::jsonb || %(refused)s::jsonb))
ON CONFLICT (tenant_id, day) DO UPDATE SET
  registry_calls = greatest(d.registry_calls, excluded.registry_calls),
  registry_refused = greatest(d.registry_refused, excluded.registry_refused)
"""

_RAISE_OPERATORS: Final = """
INSERT INTO console_platformday AS d (day, sign_ins, failures, new_users, registry_calls, registry_refused,
  operator_calls, operator_refused)
VALUES (%(day)s, 0, 0, 0, 0, 0, %(calls)s, %(refused)s)
ON CONFLICT (day) DO UPDATE SET
  operator_calls = greatest(d.operator_calls, excluded.operator_calls),
  operator_refused = greatest(d.operator_refused, excluded.operator_refused)
"""

_SUM_DAYS: Final = """
INSERT INTO console_platformday AS d (day, sign_ins, failures, new_users, registry_calls, registry_refused,
  operator_calls, operator_refused)
SELECT day, sum(sign_ins), sum(failures), sum(new_users), sum(registry_calls), sum(registry_refused), 0, 0
FROM console_tenantday WHERE day >= %(since)s GROUP BY day
ON CONFLICT (day) DO UPDATE SET
  sign_ins = excluded.sign_ins, failures = excluded.failures, new_users = excluded.new_users,
  registry_calls = excluded.registry_calls, registry_refused = excluded.registry_refused
"""


@dataclass(frozen=True, slots=True)
class Collected:
    """What one collection has found in a tenant's database. Days are in ISO format."""

    users: int
    active_users: int
    protected_users: int
    factors: dict[str, int]
    # Counted again from `counted_from` on.
    new_users: dict[str, int]
    # The counts of new events.
    days: dict[str, dict[str, int]]
    upto: int
    events_read: int
    pending_messages: int
    # Of endpoints that are enabled: the deliverer is late, or none runs.
    overdue_endpoints: int
    failing_endpoints: int
    unsealed_events: int
    pending_mails: int
    # Pending for more than 15 minutes: the mail server does not take them, or no deliverer runs.
    overdue_mails: int
    # Given up within a day.
    dead_mails: int
    database_bytes: int
    check_ms: float
    counted_from: date

    def by_day(self) -> dict[str, dict[str, int]]:
        joined = {day: {"new_users": total} for day, total in self.new_users.items()}
        return {day: {**self.days.get(day, {}), **joined.get(day, {})} for day in self.days | joined}


def add_to_days(tenant_id: UUID, collected: Collected) -> None:
    """Add a tenant's sign-ins and failures to its days, and set the new users of the days that were counted again."""
    if days := collected.by_day():
        _run(_ADD_TO_DAYS, tenant=tenant_id, days=json.dumps(days), counted_from=collected.counted_from)


def raise_days(day: date, calls: Mapping[str, int], refused: Mapping[str, int]) -> None:
    """Raise the registry's counts of a day to these, by tenant id; those of operators are under `OPERATORS`."""
    _run(_RAISE_DAYS, day=day, calls=json.dumps(dict(calls)), refused=json.dumps(dict(refused)))
    if OPERATORS in calls:
        _run(_RAISE_OPERATORS, day=day, calls=calls[OPERATORS], refused=refused.get(OPERATORS, 0))


def sum_days(since: date) -> None:
    """Sum the counts of all tenants for each day from `since` on."""
    _run(_SUM_DAYS, since=since)


def _run(statement: str, **parameters: UUID | date | str | int) -> None:
    execute("default", statement, parameters)


def factors(tenant_id: UUID | None) -> dict[str, int]:
    """Return the number of active users by factor, of one tenant or of all."""
    return dict(fetch_rows("default", _FACTORS, {"tenant": tenant_id}))


def collect(*, last: int, settled: int, day: date) -> Collected:
    """Collect the metrics of the entered tenant: events after `last`, and the users who joined from `day` on."""
    began = time.perf_counter()
    (size,) = cast(tuple[int], fetch_row(TENANT_ALIAS, "SELECT pg_database_size(current_database())"))
    check_ms = round((time.perf_counter() - began) * 1000, 2)
    with tenant_atomic(), connections[TENANT_ALIAS].cursor() as cursor:
        # Counting millions of users takes longer than a request's statements may.
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [f"{STATEMENT_SECONDS}s"])
        cursor.execute(_COLLECT, {"last": last, "settled": settled, "day": day, "piece": PIECE})
        columns: list[Any] = [*cast(tuple[Any, ...], cursor.fetchone()), size, check_ms, day]
    return Collected(*columns)

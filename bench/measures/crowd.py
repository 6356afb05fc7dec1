"""Target 9: every documented request for a list, in a tenant with a million users and in one with a thousand."""

from __future__ import annotations

import statistics
from urllib.parse import urlencode

from django.db import connections

from bench import servers, world
from bench.rounds import Subject, WrongAnswers, answers_of, load
from bench.run import Row, Run
from tenants.context import in_tenant
from tenants.states import Purpose

LIMIT = 20
MOST_MS = 20.0
MOST_OF_SMALL = 1.2

# Common names, one user in ten deactivated, one in fifty with another provider, a new user every three seconds.
_FILL = """
INSERT INTO userflow_enduser (id, email, email_key, name, active, provider, client_id, password, metadata, mfa_methods,
    created_at, updated_at)
SELECT gen_random_uuid(), address, address, initcap(first || ' ' || last), number %% 10 <> 0,
    CASE WHEN number %% 50 = 0 THEN 'google' ELSE 'local' END, %(client)s, %(password)s, '{"floor": 7}', '[]',
    now() - number * interval '3 seconds', now()
FROM (
    SELECT number, first, last, first || '.' || last || number || '@example.com' AS address
    FROM generate_series(1, %(people)s) AS number,
        LATERAL (SELECT (ARRAY['anna','ben','carla','david','emma','felix','gina','hugo','ida','jan','klara','leo','mia',
            'noah','olga','paul','quinn','rosa','sam'])[1 + number %% 19] AS first,
            (ARRAY['berg','brown','dubois','garcia','haas','ivanov','jensen','jones','king','kowalski','lee','lopez',
            'miller','moreau','nguyen','novak','rossi','schmidt','silva','smith','tanaka','weber','young'])
            [1 + (number / 7) %% 23] AS last) AS names
) AS people
"""


def measure(run: Run) -> list[Row]:
    """Measure the slowest p95 of the requests without text search, page 1 of both tenants, and the slowest text search."""
    reference, crowd = world.tenants_with_users(2, run.sizes.users, run.say)
    run.say(f"{run.sizes.crowd} people")
    fill(crowd, run.sizes.crowd)
    counted, by_text = _requests(crowd, run.sizes.crowd)
    found: dict[str, dict[str, float]] = {}
    with servers.platform(run.home) as platform:
        first, small = [], []
        for number in range(run.rounds):
            for tenant, times in ((crowd, first), (reference, small)):
                run.say(f"round {number + 1} of {run.rounds}: page 1")
                subject = Subject("page 1", platform, [_get(tenant, page=1)], connections=1)
                times.append(_answered(subject, run.seconds)["p50_ms"])
        for name, request in {**counted, **by_text}.items():
            run.say(name)
            subject = Subject(name, platform, [request], connections=1)
            found[name] = min((_answered(subject, run.seconds) for _ in range(2)), key=lambda one: one["p95_ms"])
    run.raw["crowd"] = {"page_1": {"crowd": first, "reference": small}, "requests": found}
    page_1 = statistics.median(a / b for a, b in zip(first, small, strict=True))
    return [
        _slowest("9", f"lists in a tenant of {run.sizes.crowd}, by page and by what is counted", counted, found),
        Row(
            "9",
            f"page 1 of {run.sizes.crowd}",
            ours=f"{statistics.median(first):.2f} ms",
            against=f"of {run.sizes.users}: {statistics.median(small):.2f} ms",
            ratio=page_1,
            wanted=f"≤ {MOST_OF_SMALL}",
            met=page_1 <= MOST_OF_SMALL,
        ),
        _slowest("9", "lists by a text in an address or a name", by_text, found),
    ]


def fill(tenant: world.BenchTenant, people: int) -> None:
    """Add people until the tenant has so many. It has none of an earlier call, or all of them."""
    with in_tenant(tenant.tenant_id, Purpose.WRITE), connections["tenant"].cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
        cursor.execute("SELECT count(*) FROM userflow_enduser")
        missing = people - cursor.fetchone()[0]
        if missing > 0:
            cursor.execute(_FILL, {"client": tenant.client_id, "password": world.password_hash(), "people": missing})
            cursor.execute("VACUUM ANALYZE")
        cursor.execute("RESET statement_timeout")


def _requests(tenant: world.BenchTenant, people: int) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the requests whose totals are counters, and those that search for text."""
    last = people // LIMIT
    counted: dict[str, dict[str, object]] = {
        "page 1": {},
        "page in the middle": {"page": last // 2},
        "last page": {"page": last},
        "active": {"active": "true"},
        "deactivated, tenth page": {"active": "false", "page": 10},
        "active, page in the middle": {"active": "true", "page": last // 2},
        "client": {"client_id": tenant.client_id},
        "provider": {"provider": "google"},
        "provider in another case": {"provider": "LOCAL"},
    }
    by_text: dict[str, dict[str, object]] = {
        "e-mail of one person": {"email": "emma.lee"},
        "one letter": {"email": "a"},
        "in no e-mail": {"email": "zzz"},
        "first name": {"name": "anna"},
        "name and active": {"name": "berg", "active": "true"},
    }
    return (
        {name: _get(tenant, **query) for name, query in counted.items()},
        {name: _get(tenant, **query) for name, query in by_text.items()},
    )


def _get(tenant: world.BenchTenant, **query: object) -> bytes:
    asked = urlencode({"tenant_id": tenant.tenant_id, "limit": LIMIT, **query})
    return world.get(f"/uflow/user/enduser/list?{asked}", tenant.token)


def _answered(subject: Subject, seconds: float) -> dict[str, float]:
    counted = answers_of(load(subject, seconds))
    if set(counted["statuses"]) != {"200"}:
        raise WrongAnswers(f"{subject.name} was answered {counted['statuses']}.")
    return {name: value for name, value in counted.items() if isinstance(value, float)}


def _slowest(target: str, what: str, requests: dict[str, bytes], found: dict[str, dict[str, float]]) -> Row:
    name = max(requests, key=lambda one: found[one]["p95_ms"])
    slowest = found[name]["p95_ms"]
    others = ", ".join(f"{one} {found[one]['p95_ms']:.1f}" for one in requests if one != name)
    return Row(
        target,
        what,
        ours=f"p95 {slowest:.1f} ms ({name})",
        against="–",
        ratio=slowest / MOST_MS,
        wanted=f"≤ {MOST_MS:.0f} ms",
        met=slowest <= MOST_MS,
        beside=f"ms: {others}",
    )

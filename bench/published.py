"""Write what the documentation shows of bench/results/bench.json: tables between markers, and plots of the curves.

`bin/bench` does so after a run, `bin/bench --publish` without one. A request or a program without a result has a dash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench import plots, published_keycloak
from bench.home import ROOT
from bench.report import steal_of
from bench.subjects import ALSO_LEAVES_OUT, LEAVES_OUT, NAMES

Document = Mapping[str, Any]
Samples = Sequence[Mapping[str, Any]]
NONE: Final = "–"
# After all targets.
NO_TARGET: Final = 1000
IMAGES: Final = "docs/images"


@dataclass(frozen=True)
class Request:
    """A request of the table in README.md: the samples of its programs, and the measurement that made them."""

    name: str
    samples: str
    measurement: str


REQUESTS: Final = (
    Request("login", "peers_login", "peers"),
    Request("authorized read: the caller's profile", "peers_read", "peers"),
    Request("list of 20 users with the total", "list", "list"),
    Request("refresh, with a new refresh token", "peers_refresh", "peers"),
    Request("read of a credential, decrypted and audited", "credential", "backends"),
)
# Both programs in one run, with users of many tenants: not to be compared with the rows above.
BESIDE_KEYCLOAK: Final = (
    Request("hosted sign-in (code flow with PKCE), 21 tenants", "keycloak_sign_in", "keycloak"),
    Request("login without a page, 21 tenants", "keycloak_login", "keycloak"),
    Request("refresh of an application", "keycloak_refresh", "keycloak"),
    Request("client_credentials, 21 tenants", "keycloak_client_credentials", "keycloak"),
    Request("introspection, 21 tenants", "keycloak_introspection", "keycloak"),
    Request("userinfo, 21 tenants", "keycloak_userinfo", "keycloak"),
    Request("new user with a password, 21 tenants", "keycloak_new_user", "keycloak"),
    Request("list of 20 users, 21 tenants", "keycloak_list", "keycloak"),
    Request("metadata and keys, 21 tenants", "keycloak_metadata", "keycloak"),
)
# Measured one after the other, in ms, instead of by eight callers.
NEW_TENANT: Final = Request("new tenant", "provisioning", "provisioning")
# Samples whose programs have other names there.
RENAMED: Final = {"list": {"bare": "drf"}}


def publish(results: Path, root: Path = ROOT) -> list[Path]:
    """Write the tables and plots of the results; return the changed pages."""
    document = json.loads((results / "bench.json").read_text(encoding="utf-8"))
    pages = tables(document)
    for name, blocks in pages.items():
        page = root / name
        page.write_text(filled(page.read_text(encoding="utf-8"), blocks), encoding="utf-8")
    for curve in measured_curves(document):
        at, lines = curve.values(document["samples"])
        plots.draw(
            root / IMAGES / f"{curve.file}.svg",
            title=curve.title,
            unit=curve.unit,
            over=curve.over,
            at=at,
            lines=lines,
            logarithmic=True,
        )
    return [root / name for name in pages]


def tables(document: Document) -> dict[str, dict[str, str]]:
    """Return the text of each marked block of each page."""
    return {
        "README.md": {"requests": _requests(document)},
        "docs/performance.md": {
            "programs": _programs(document),
            "keycloak": published_keycloak.sentence(document["samples"]),
            "targets": _targets(document),
            "curves": _curves(document),
        },
    }


def filled(text: str, blocks: Mapping[str, str]) -> str:
    """Return a page with the text of its blocks. Raises ValueError if it does not have one of them."""
    for name, block in blocks.items():
        begin, end = f"<!-- bin/bench writes {name} -->\n", f"<!-- {name}: end -->"
        pattern = re.compile(f"({re.escape(begin)}).*?({re.escape(end)})", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"The page has no block {name}.")
        text = pattern.sub(lambda found, block=block: f"{found[1]}{block}{found[2]}", text)  # type: ignore[misc]
    return text


# --- tables ----------------------------------------------------------------------------------------------------------


def _requests(document: Document) -> str:
    """Return one row for each request, one column for each program."""
    rows = []
    for request in _measured(document):
        programs = _samples(document, request)
        cells = [
            f"{_per_second(programs[name])}/s, {_milliseconds(_all_cpu(programs[name]))}" if name in programs else NONE
            for name in NAMES
        ]
        rows.append([request.name, *cells, f"`{_command(document, request)}`"])
    times = _times_of_new_tenant(document)
    cells = [_milliseconds(times[name]) if name in times else NONE for name in NAMES]
    rows.append([NEW_TENANT.name, *cells, f"`{_command(document, NEW_TENANT)}`"])
    command = f"`{_command(document, BESIDE_KEYCLOAK[0])}`"
    for what, values in published_keycloak.lines(document["samples"]):
        rows.append([what, *(values.get(name, NONE) for name in NAMES), command])
    return _table(["request", *NAMES.values(), "command"], rows)


def _programs(document: Document) -> str:
    """Return one row for each request and program."""
    rows = []
    for request in _measured(document):
        for name, taken in _samples(document, request).items():
            also = ALSO_LEAVES_OUT.get((request.samples, name))
            cpu = [_milliseconds(_middle(taken, which) / 1000) for which in ("server_us", "postgres_us")]
            times = [_milliseconds(_middle(taken, which)) for which in ("p50_ms", "p99_ms")]
            left_out = ", ".join(filter(None, (LEAVES_OUT[name], also))) or NONE
            command = f"`{_command(document, request)}`"
            rows.append([request.name, NAMES[name], _per_second(taken), *cpu, *times, left_out, command])
    for name, time in _times_of_new_tenant(document).items():
        cells = [NONE, NONE, NONE, _milliseconds(time), NONE, LEAVES_OUT[name] or NONE]
        rows.append([NEW_TENANT.name, NAMES[name], *cells, f"`{_command(document, NEW_TENANT)}`"])
    heads = ["requests/s", "CPU of the server", "CPU of PostgreSQL", "p50", "p99", "leaves out", "command"]
    return _table(["request", "program", *heads], rows)


def _measured(document: Document) -> list[Request]:
    """Return the requests of the tables: those beside Keycloak only once it was measured."""
    return [*REQUESTS, *(request for request in BESIDE_KEYCLOAK if request.samples in document["samples"])]


def _targets(document: Document) -> str:
    """Return every measured ratio, by the first target of its measurement."""
    first: dict[str, int] = {}
    for row in document["rows"]:
        target = int(row["target"]) if row["target"].isdigit() else NO_TARGET
        first[row["measurement"]] = min(target, first.get(row["measurement"], NO_TARGET))
    rows = []
    for row in sorted(document["rows"], key=lambda row: first[row["measurement"]]):
        run = row["run"]
        met = NONE if row["wanted"] == "no target" else "yes" if row["met"] else "**no**"
        wanted = NONE if row["wanted"] == "no target" else row["wanted"]
        steal = f", steal {steal_of(run)} %" if steal_of(run) else ""
        command = run.get("command") or f"bin/bench {row['measurement']}"
        measured = f"{run['began'][:10]}, {run['commit']}{steal}"
        cells = [row["target"], row["what"], row["ours"], row["against"], f"{row['ratio']:.2f}", wanted, met]
        rows.append([*cells, f"`{command}`", measured])
    heads = ["target", "what", "this platform", "compared with", "ratio", "required", "met", "command", "measured"]
    return _table(heads, rows)


def _samples(document: Document, request: Request) -> dict[str, Samples]:
    """Return the samples of the programs in the order of the columns."""
    renamed = RENAMED.get(request.samples, {})
    found = {renamed.get(name, name): taken for name, taken in document["samples"].get(request.samples, {}).items()}
    return {name: found[name] for name in NAMES if name in found}


def _times_of_new_tenant(document: Document) -> dict[str, float]:
    found = document["samples"].get(NEW_TENANT.samples)
    if not found:
        return {}
    # With the fewest tenants there.
    claims, schemas = (next(iter(found[which].values())) for which in ("claims_ms", "django_tenants_ms"))
    return {"platform": median(claims), "django-tenants": median(schemas)}


def _command(document: Document, request: Request) -> str:
    """Return the command that made the samples."""
    runs = [row["run"] for row in document["rows"] if row["measurement"] == request.measurement]
    return next((run["command"] for run in runs if "command" in run), f"bin/bench {request.measurement}")


def _per_second(taken: Samples) -> str:
    return f"{_middle(taken, 'per_second'):,.0f}"


def _all_cpu(taken: Samples) -> float:
    """Return the CPU time of server and PostgreSQL for a request in ms."""
    return (_middle(taken, "server_us") + _middle(taken, "postgres_us")) / 1000


def _middle(taken: Samples, what: str) -> float:
    return median(one[what] for one in taken)


def _milliseconds(value: float) -> str:
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# --- curves ----------------------------------------------------------------------------------------------------------

Values = tuple[list[float], dict[str, list[float]]]


@dataclass(frozen=True)
class Curve:
    """A plot: `values` returns its places on the axis of `over` and its lines."""

    file: str
    title: str
    unit: str
    over: str
    samples: str
    values: Callable[[Document], Values]


def _lines(name: str, **lines: Callable[[Samples], float]) -> Callable[[Document], Values]:
    """Return the values of lines that all are of the same samples; the names are written with _ for a space."""

    def values(samples: Document) -> Values:
        taken = samples[name]
        return [int(place) for place in taken], {
            line.replace("_", " "): [value(taken[place]) for place in taken] for line, value in lines.items()
        }

    return values


def _rates_of_tenants(samples: Document) -> Values:
    at, lines = _lines("curves_tenants", default_budget_of_connections=_rate)(samples)
    _, tight = _lines("curves_tenants_tight", at_most_20_connections_of_a_worker=_rate)(samples)
    return at, lines | tight


def _rate(taken: Samples) -> float:
    return _middle(taken, "per_second")


def _p99(of: str) -> Callable[[Samples], float]:
    return lambda taken: median(one[of]["p99_ms"] for one in taken)


CURVES: Final = (
    Curve(
        "curve-threads", "Authorized reads", "requests/s", "threads of a worker", "curves_threads",
        _lines("curves_threads", eight_callers=_rate),
    ),
    Curve(
        "curve-threads-cpu", "CPU time of an authorized read", "ms", "threads of a worker", "curves_threads",
        _lines(
            "curves_threads",
            server=lambda taken: _middle(taken, "server_us") / 1000,
            PostgreSQL=lambda taken: _middle(taken, "postgres_us") / 1000,
        ),
    ),
    Curve(
        "curve-threads-p99", "p99 of 100 authorized reads a second", "ms", "threads of a worker", "curves_logins",
        _lines("curves_logins", alone=_p99("alone"), beside_logins=_p99("beside")),
    ),
    Curve("curve-tenants", "Authorized reads of random tenants", "requests/s", "tenants", "curves_tenants", _rates_of_tenants),
    Curve(
        "curve-users", "Authorized reads of random users of a tenant", "requests/s", "users", "curves_users",
        _lines("curves_users", eight_callers=_rate),
    ),
)  # fmt: skip


def measured_curves(document: Document) -> list[Curve]:
    """Return the curves whose samples the results have."""
    return [curve for curve in CURVES if curve.samples in document["samples"]]


def _curves(document: Document) -> str:
    """Return the plots with the numbers below them."""
    curves = measured_curves(document)
    if not curves:
        return "Not measured yet: `bin/bench curves`.\n"
    images = "".join(f"![{curve.title} over {curve.over}](images/{curve.file}.svg)\n" for curve in curves)
    return f"{images}\n{_threads(document['samples'])}\n{_tenants(document['samples'])}\n{_users(document['samples'])}"


def _threads(samples: Document) -> str:
    rows = []
    for threads, taken in samples["curves_threads"].items():
        beside = samples["curves_logins"][threads]
        logins, refused = (sum(one[which] for one in beside) for which in ("logins", "refused"))
        share = refused / (logins + refused or 1)
        p99 = [_milliseconds(_p99(of)(beside)) for of in ("alone", "beside")]
        rate = f"{logins / sum(one['seconds'] for one in beside):.0f}/s"
        rows.append([threads, *_cost(taken), *p99, rate, f"{share:.0%}"])
    heads = ["p99 of 100 reads/s", "the same beside logins", "logins", "rejected with 503"]
    return _table(["threads of a worker", *COST, *heads], rows)


def _tenants(samples: Document) -> str:
    tight = samples["curves_tenants_tight"]
    rows = [[tenants, *_cost(taken), *_cost(tight[tenants])] for tenants, taken in samples["curves_tenants"].items()]
    return _table(["tenants", *COST, *(f"{head}, 20 connections" for head in COST)], rows)


def _users(samples: Document) -> str:
    return _table(["users", *COST], [[f"{int(users):,}", *_cost(of)] for users, of in samples["curves_users"].items()])


COST: Final = ("reads", "CPU of the server", "CPU of PostgreSQL")


def _cost(taken: Samples) -> list[str]:
    cpu = [_milliseconds(_middle(taken, which) / 1000) for which in ("server_us", "postgres_us")]
    return [f"{_per_second(taken)}/s", *cpu]

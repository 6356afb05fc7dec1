"""Import services with the same rows, report, options and progress as end users, in the global database."""

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet, Value
from django.db.models.functions import Lower
from django.utils.timezone import now

from identity_platform.api.fields import Choice, Identifier, Text, Timestamp
from identity_platform.api.url_field import HttpUrl
from identity_platform.audit.writer import record_for_each_on_platform, record_for_platform
from identity_platform.transfer import runs, schema
from identity_platform.transfer.report import Report, Tally
from identity_platform.transfer.rows import CSV, Row, RowError, digest_of, rows_of
from identity_platform.transfer.runs import SKIP, UPDATE, Batch, Options
from registry import models, queries
from registry.models import Service, ServiceCredential, ServiceImport, seal_secret
from registry.serializers import Secret, free_metadata

SERVICE, CREDENTIAL = "service", "credential"

SERVICES = schema.RowSchema(
    {
        "kind": Choice((SERVICE,)),
        "id": Identifier(),
        "name": Text(max_length=255, trim=True),
        "description": Text(max_length=10_000, allow_blank=True, single_line=False),
        "type": Text(max_length=models.LONGEST_TYPE, trim=True),
        "status": Choice(models.STATUSES),
        "base_url": HttpUrl(),
        "api_version": Text(max_length=255, allow_blank=True),
        "metadata": free_metadata(),
        "created_at": Timestamp(),
    },
    needed=("name", "type", "base_url"),
    texts={"metadata": schema.json_cell},
)
CREDENTIALS = schema.RowSchema(
    {
        "kind": Choice((CREDENTIAL,)),
        "service": Text(max_length=255, trim=True),
        "name": Text(max_length=255, trim=True),
        "type": Choice(models.CREDENTIAL_TYPES),
        "status": Choice((models.ACTIVE, models.REVOKED)),
        "secret": Secret(),
        "metadata": free_metadata(),
        "expires_at": Timestamp(),
        "created_at": Timestamp(),
    },
    needed=("service", "name"),
    texts={},
)
KINDS = {SERVICE: SERVICES, CREDENTIAL: CREDENTIALS}
# Credentials are only in JSON lines: a CSV of services has no columns for them.
KNOWN_IN_CSV = SERVICES.known - {"kind"}
KNOWN_IN_JSON = SERVICES.known | CREDENTIALS.known


IMPORT = "service_import"
TAKEN = "The tenant has a service of this name, or an earlier row has it."
BOUND = "The service has a credential of this name, or an earlier row has it."
NO_SECRET = "credentials have no secret in the file and were left out. Create them through the API."
# The validated fields of a row.
Values = dict[str, Any]


@dataclass
class _Rules:
    """The settings of one import, for all of its batches."""

    tenant_id: UUID
    options: Options
    from_text: bool
    # What a dry run would have created so far: names of services, and (service, name) of credentials.
    planned: set[str | tuple[str, str]] = field(default_factory=set)
    left_out: int = 0


def import_services(
    *,
    tenant_id: UUID,
    stream: IO[bytes],
    form: str,
    options: Options,
    open_report: Callable[[int], Report] = lambda after_line: Report(),
    seen: Callable[[Tally, int], None] = lambda tally, offset: None,
) -> tuple[Tally, Report]:
    """Import the services of a file, and its credentials with secrets; return the counts and the report.

    Secrets are sealed under the tenant's own key. Each batch is one transaction together with the position in the file.
    Raises FileUnusable, ImportRunning, ImportTakenOver, NothingToResume, DataKeyLocked.
    """
    known = KNOWN_IN_CSV if form == CSV else KNOWN_IN_JSON
    rules = _Rules(tenant_id, options, form == CSV)
    # Checked before a run is created, so that an unreadable file leaves none behind.
    next(rows_of(stream, form=form, known=known), None)
    run = None if options.dry_run else _begin(tenant_id, digest_of(stream), options)
    report = open_report(run.line if run else 0)

    def apply(rows: list[Row], judged: _Judged) -> Batch:
        with transaction.atomic():
            done = _apply(judged, rules)
            if run is not None:
                _mark(run, rows, done)
            report.take(done.faults)
        return done

    tally = runs.take_all(
        rows_of(stream, form=form, known=known, after=(run.line, run.offset) if run else (0, 0)),
        size=options.batch_size,
        judge=partial(_judge, rules=rules),
        apply=apply,
        seen=seen,
        tally=run.tally() if run else None,
    )
    if run is not None:
        _finish(run, tally)
    if rules.left_out:
        report.notes.append(f"{rules.left_out} {NO_SECRET}")
    return tally, report


def _runs(tenant_id: UUID) -> QuerySet[ServiceImport]:
    return ServiceImport.objects.filter(tenant_id=tenant_id)


def _begin(tenant_id: UUID, digest: str, options: Options) -> ServiceImport:
    with transaction.atomic():
        run: ServiceImport = runs.begin(_runs(tenant_id), {"tenant_id": tenant_id}, digest=digest, options=options)
        action = "service_import.resumed" if run.line else "service_import.started"
        details = {"sha256": digest, "after_line": run.line}
        record_for_platform(action, tenant_id=tenant_id, target=(IMPORT, run.pk), details=details)
    return run


def _finish(run: ServiceImport, tally: Tally) -> None:
    target, details = (IMPORT, run.pk), tally.counts()
    with transaction.atomic():
        runs.finish(_runs(run.tenant_id), run)
        record_for_platform("service_import.finished", tenant_id=run.tenant_id, target=target, details=details)


def _mark(run: ServiceImport, rows: list[Row], done: Batch) -> None:
    runs.advance(_runs(run.tenant_id), run, last=rows[-1], tally=done.tally)
    details = {"first_line": rows[0].line, "last_line": rows[-1].line, **done.tally.counts()}
    record_for_platform("service_import.batch", tenant_id=run.tenant_id, target=(IMPORT, run.pk), details=details)


@dataclass(slots=True)
class _Judged:
    """The valid rows of a batch, and the faults of the others."""

    services: list[Values] = field(default_factory=list)
    credentials: list[Values] = field(default_factory=list)
    faults: list[RowError] = field(default_factory=list)


def _judge(rows: list[Row], rules: _Rules) -> _Judged:
    """Validate each row by itself, without the database."""
    judged = _Judged()
    for row in rows:
        kind = row.members.get("kind", SERVICE)
        spec = KINDS.get(kind) if isinstance(kind, str) else None
        if spec is None:
            row.faults.append(RowError(row.line, "kind", f"Send one of: {', '.join(KINDS)}."))
        elif not row.faults:
            values = spec.read(row, from_text=rules.from_text)
            if values.get("created_at") is not None and values["created_at"] > now():
                row.faults.append(RowError(row.line, "created_at", "Send a time in the past."))
            if not row.faults:
                (judged.services if kind == SERVICE else judged.credentials).append({**values, "line": row.line})
        judged.faults += row.faults
    return judged


def _apply(judged: _Judged, rules: _Rules) -> Batch:
    """Import a validated batch in the open transaction. A faulty row stays out; the others are imported."""
    batch = Batch()
    batch.fail(judged.faults)
    _apply_services(judged.services, rules, batch)
    _apply_credentials(judged.credentials, rules, batch)
    return batch


# --- services --------------------------------------------------------------------------------------------------------


def _apply_services(rows: list[Values], rules: _Rules, batch: Batch) -> None:
    if not rows:
        return
    _set_ids(rows)
    made = _plan_services(rows, rules) if rules.options.dry_run else _create_services(rows, rules)
    batch.tally.created += len(made)
    clashing = [row for row in rows if row["id"] not in made]
    if rules.options.on_conflict == UPDATE and clashing:
        if not rules.options.dry_run:
            # Of two rows with one name the later one wins, as in two batches.
            _update_services(list({_key(row["name"]): row for row in clashing}.values()), rules)
        batch.tally.updated += len(clashing)
    else:
        _skip_or_fail(clashing, "name", TAKEN, rules, batch)


def _set_ids(rows: list[Values]) -> None:
    """Keep stated ids that are free; an export of another tenant on this platform states ids that are taken."""
    used = set(Service.objects.filter(pk__in=[row["id"] for row in rows if "id" in row]).values_list("pk", flat=True))
    for row in rows:
        if "id" not in row or row["id"] in used:
            row["id"] = uuid.uuid4()
        used.add(row["id"])


def _create_services(rows: list[Values], rules: _Rules) -> set[UUID]:
    made = queries.insert_services(rules.tenant_id, rows)
    _record("service.created", SERVICE, made, rules)
    return made


def _plan_services(rows: list[Values], rules: _Rules) -> set[UUID]:
    taken = {
        _key(name) for name in _services_by_names([row["name"] for row in rows], rules).values_list("name", flat=True)
    }
    made = set()
    for row in rows:
        if _key(row["name"]) not in taken | rules.planned:
            rules.planned.add(_key(row["name"]))
            made.add(row["id"])
    return made


def _update_services(rows: list[Values], rules: _Rules) -> None:
    locked = _services_by_names([row["name"] for row in rows], rules).order_by("pk").select_for_update(no_key=True)
    list(locked.values_list("pk"))  # in one order, so that two imports cannot deadlock
    changed = queries.update_services(rules.tenant_id, rows)
    _record("service.updated", SERVICE, changed, rules)


# --- credentials -----------------------------------------------------------------------------------------------------


def _apply_credentials(rows: list[Values], rules: _Rules, batch: Batch) -> None:
    """Create the credentials; an existing one keeps its secret, independent of `--on-conflict`."""
    without_secret = [row for row in rows if "secret" not in row]
    rules.left_out += len(without_secret)
    batch.tally.skipped += len(without_secret)
    services = _services(rows, rules)
    missing = [row for row in rows if "secret" in row and row["service"] not in services]
    batch.fail([RowError(row["line"], "service", "The tenant has no service of this name.") for row in missing])
    bound = [row for row in rows if "secret" in row and row["service"] in services]
    if not bound:
        return
    for row in bound:
        row |= {"id": uuid.uuid4(), "service_id": services[row["service"]]}
    made = _plan_credentials(bound, rules) if rules.options.dry_run else _create_credentials(bound, rules)
    batch.tally.created += len(made)
    clashing = [row for row in bound if row["id"] not in made]
    if rules.options.on_conflict == UPDATE:
        batch.tally.skipped += len(clashing)
    else:
        _skip_or_fail(clashing, "name", BOUND, rules, batch)


def _services(rows: list[Values], rules: _Rules) -> dict[str, UUID]:
    """Return the services that the rows name, locked against deletion; in a dry run also planned ones."""
    names = {row["service"] for row in rows}
    locked = _services_by_names(names, rules).order_by("pk").select_for_update(no_key=True).values_list("name", "pk")
    ids = {_key(name): pk for name, pk in locked}
    planned = {key: uuid.uuid4() for name in names if (key := _key(name)) in rules.planned}
    return {name: known for name in names if (known := ids.get(_key(name)) or planned.get(_key(name)))}


def _services_by_names(names: Iterable[str], rules: _Rules) -> QuerySet[Service]:
    """Return the tenant's services with these names, in any case."""
    keys = [Lower(Value(name)) for name in names]
    return Service.objects.annotate(key=Lower("name")).filter(tenant_id=rules.tenant_id, key__in=keys)


def _key(name: str) -> str:
    """Return what the names of two services may not share. PostgreSQL decides in the end (`service_name_unique_any_case`)."""
    return name.lower()


def _create_credentials(rows: list[Values], rules: _Rules) -> set[UUID]:
    defaults = {"type": models.API_KEY, "status": models.ACTIVE, "metadata": {}, "created_at": now()}
    sealed = []
    for row in rows:
        ids = {"service_id": row["service_id"], "credential_id": row["id"]}
        secret = seal_secret(row["secret"], tenant_id=rules.tenant_id, **ids)
        sealed.append({**defaults, **row, "secret": secret.hex()})
    made = queries.insert_credentials(rules.tenant_id, sealed)
    _record("service_credential.created", models.CREDENTIAL, made, rules)
    return made


def _plan_credentials(rows: list[Values], rules: _Rules) -> set[UUID]:
    existing = ServiceCredential.objects.filter(service_id__in={row["service_id"] for row in rows})
    taken = set(existing.values_list("service_id", "name"))
    made = set()
    for row in rows:
        service_and_name = (row["service"], row["name"])
        if (row["service_id"], row["name"]) not in taken and service_and_name not in rules.planned:
            rules.planned.add(service_and_name)
            made.add(row["id"])
    return made


def _skip_or_fail(rows: list[Values], field: str, reason: str, rules: _Rules, batch: Batch) -> None:
    if rules.options.on_conflict == SKIP:
        batch.tally.skipped += len(rows)
    else:
        batch.fail([RowError(row["line"], field, reason) for row in rows])


def _record(action: str, kind: str, ids: Iterable[UUID], rules: _Rules) -> None:
    if sorted_ids := sorted(ids):
        record_for_each_on_platform(
            action, tenant_id=rules.tenant_id, kind=kind, ids=sorted_ids, details={"via": "import"}
        )

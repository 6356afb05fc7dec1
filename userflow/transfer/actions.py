"""Import end users: a file by command, up to 1000 rows over REST, with the same checks and the same report."""

import io
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import IO
from uuid import UUID, uuid4

from identity_platform.audit.writer import record_for_tenant
from identity_platform.postgresql.statement_timeout import no_timeout
from identity_platform.semaphore import Semaphore
from identity_platform.transfer import runs
from identity_platform.transfer.report import Report, Tally
from identity_platform.transfer.rows import CSV, JSONL, Row, digest_of, row_of, rows_of
from identity_platform.transfer.runs import Batch, Options
from tenants.entering.context import in_tenant, tenant_atomic
from userflow.accounts.principals import Principal
from userflow.credentials import attempts
from userflow.errors import ImportsBusy, TooManyNames, TooManyRows
from userflow.sessions.assurance import Action, require_assurance
from userflow.transfer import batches, staging
from userflow.transfer.batches import Judged
from userflow.transfer.models import EndUserImport
from userflow.transfer.row_fields import KNOWN_IN_CSV, KNOWN_IN_JSON

IMPORT = "end_user_import"
MOST_OVER_REST = 1000
# Distinct groups and roles in the rows of one call, which `create_missing` would all create.
MOST_NAMES = 200
# Faults listed in a response; `failed` counts all of them.
MOST_FAULTS = 1000
# An import over REST takes seconds of a core and waits for others with the same addresses. Without a limit, the admin of one
# tenant could hold every thread of the server.
_semaphore = Semaphore.for_slow_requests("import", ImportsBusy)
# Called with the counts so far and the byte offset up to which the file is read.
Seen = Callable[[Tally, int], None]


def import_end_users(
    *,
    tenant_id: UUID,
    stream: IO[bytes],
    form: str,
    options: Options,
    default_client: bool = False,
    open_report: Callable[[int], Report] = lambda after_line: Report(),
    seen: Seen = lambda tally, offset: None,
) -> tuple[Tally, Report]:
    """Import the end users of a file; return the counts and the report.

    Each batch is one transaction together with its position in the file, its audit event and its reported faults, so a
    killed import continues where it was. A dry run makes the same checks and writes only its own staging table.
    `open_report` gets the line after which it begins. With `default_client`, users of unknown clients get the tenant's
    default client. Raises FileUnusable, ImportRunning, ImportTakenOver, NothingToResume,
    UnknownTenant, TenantSuspended, TenantBusy.
    """
    known = KNOWN_IN_CSV if form == CSV else KNOWN_IN_JSON
    rules = batches.Rules(tenant_id, options, form == CSV, default_client, planned=set() if options.dry_run else None)
    # Checked before a run is created, so that an unreadable file leaves none behind.
    next(rows_of(stream, form=form, known=known), None)
    run = None if options.dry_run else _begin(tenant_id, digest_of(stream), options)
    report = open_report(run.line if run else 0)

    def apply(rows: list[Row], judged: Judged) -> Batch:
        def save_progress(done: Batch) -> None:
            if run is not None:
                runs.advance(EndUserImport.objects.all(), run, last=rows[-1], tally=done.tally)
                details = {"first_line": rows[0].line, "last_line": rows[-1].line, **done.tally.counts()}
                record_for_tenant("end_user_import.batch", target=(IMPORT, run.pk), details=details)
            report.take(done.faults)

        with in_tenant(tenant_id):
            return batches.apply_batch(judged, rules, before_commit=save_progress)

    tally = runs.take_all(
        rows_of(stream, form=form, known=known, after=(run.line, run.offset) if run else (0, 0)),
        size=options.batch_size,
        judge=partial(batches.judge, rules=rules),
        apply=apply,
        seen=seen,
        tally=run.tally() if run else None,
    )
    if run is not None:
        with in_tenant(tenant_id), tenant_atomic():
            runs.finish(EndUserImport.objects.all(), run)
            record_for_tenant("end_user_import.finished", target=(IMPORT, run.pk), details=tally.counts())
            staging.publish_finished(run.pk, tally)
    return tally, report


def _begin(tenant_id: UUID, digest: str, options: Options) -> EndUserImport:
    with in_tenant(tenant_id), tenant_atomic():
        run: EndUserImport = runs.begin(EndUserImport.objects.all(), {}, digest=digest, options=options)
        record_for_tenant(
            "end_user_import.resumed" if run.line > 0 else "end_user_import.started",
            target=(IMPORT, run.pk),
            details={"sha256": digest, "after_line": run.line},
        )
    return run


def import_few(
    *,
    tenant_id: UUID,
    by: Principal,
    options: Options,
    rows: list[dict[str, object]] | None = None,
    content: str = "",
    form: str = JSONL,
) -> tuple[Tally, Report]:
    """Import at most MOST_OVER_REST rows in one transaction: objects, or the content of a file.

    The caller can grant no permission that it does not hold, and change no user who holds more. Raises
    InsufficientAuthentication (rows that name roles or groups), FileUnusable, TooManyRows, TooManyNames,
    TooManyFromAddress, ImportsBusy, UnknownTenant, TenantSuspended, TenantBusy.
    """
    attempts.limit_address("transfer")
    # A thousand rows may exceed a request's statement timeout; the semaphore keeps threads free.
    with _semaphore.acquire(), no_timeout():
        return _import_few(tenant_id, by, options, rows, content, form)


def _import_few(
    tenant_id: UUID, by: Principal, options: Options, rows: list[dict[str, object]] | None, content: str, form: str
) -> tuple[Tally, Report]:
    from_text = rows is None and form == CSV
    if rows is None:
        known = KNOWN_IN_CSV if form == CSV else KNOWN_IN_JSON
        read = list(islice(rows_of(io.BytesIO(content.encode()), form=form, known=known), MOST_OVER_REST + 1))
    else:
        read = [row_of(number, 0, members, KNOWN_IN_JSON) for number, members in enumerate(rows, 1)]
    if len(read) > MOST_OVER_REST:
        raise TooManyRows
    rules = batches.Rules(tenant_id, options, from_text, by=by)
    judged = batches.judge(read, rules)
    names = {name for person in judged.people for name in (*person.groups, *(person.roles or ()))}
    if len(names) > MOST_NAMES:
        raise TooManyNames
    if names and not options.dry_run:
        require_assurance(Action.GRANT_ROLES, by)

    def record(done: Batch) -> None:
        if not options.dry_run:
            import_id = uuid4()
            record_for_tenant("end_user_import.finished", target=(IMPORT, import_id), details=done.tally.counts())
            staging.publish_finished(import_id, done.tally)

    with in_tenant(tenant_id):
        done = batches.apply_batch(judged, rules, before_commit=record)
    report = Report(most=MOST_FAULTS)
    report.take(done.faults)
    return done.tally, report

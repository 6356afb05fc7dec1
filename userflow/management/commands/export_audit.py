import sys
from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime

import orjson

from tenants.journals import audit_trails
from tenants.management import terminal
from userflow.audit.actions import Filters, export_events


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as problem:
        raise ArgumentTypeError("use a day or a time, such as 2030-01-31 or 2030-01-31T12:00:00Z") from problem
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Command(terminal.OperatorCommand):
    help = (
        "Write the audit log of a tenant or of the platform to standard output: one JSON object per line, oldest first. "
        "The export is recorded in the platform's audit log. Example: export_audit acme --from 2030-01-01 > acme.jsonl"
    )
    after_interruption = terminal.STARTS_OVER

    def add_arguments(self, parser: ArgumentParser) -> None:
        whose = parser.add_mutually_exclusive_group(required=True)
        whose.add_argument("tenant", nargs="?", help="Slug or id of a tenant.")
        whose.add_argument("--platform", action="store_true", help="The platform's audit log.")
        parser.add_argument("--from", dest="since", type=_moment, help="At or after this moment (default UTC).")
        parser.add_argument("--to", dest="until", type=_moment, help="Before this moment.")

    def handle(
        self,
        *args: object,
        tenant: str | None = None,
        platform: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        **options: object,
    ) -> None:
        name = "platform" if platform or tenant is None else tenant
        (owner,) = audit_trails.owners([name], states=audit_trails.READABLE)
        written = 0
        try:
            filters = Filters(since=since, until=until)
            for event in export_events(tenant_id=owner.tenant_id, filters=filters, to_operator=True):
                self.stdout.write(orjson.dumps(event, default=str).decode())
                written += 1
        except BrokenPipeError:
            # `export_audit acme | head` closes the pipe early.
            sys.exit(0)
        self.stderr.write(f"{terminal.counted(written, 'event')}.")

import sys
import time
from argparse import ArgumentParser

from django.core.management.base import CommandError
from django.db import DatabaseError
from psycopg import Error as DriverError

from tenants.failure_reasons import why
from tenants.journals import audit_trails
from tenants.journals.audit_trails import Owner, TrailUnreachable
from tenants.management import terminal
from tenants.states import State


class Command(terminal.OperatorCommand):
    help = (
        "Read the audit trails of the platform and of all tenants, or of those named, and compare them with their hash "
        "chains. Finds events and chain links that were changed, removed, added or exchanged. Exit code 0: all chains are "
        "intact; 1: at least one is broken; 3: none is broken, but at least one could not be read. "
        "Example: verify_audit acme"
    )
    after_interruption = terminal.STARTS_OVER

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("only", nargs="*", metavar="TENANT", help="Slug or id of a tenant, or `platform`.")
        parser.add_argument(
            "--accept-end",
            action="store_true",
            help="For one tenant restored from a backup: accept its newest link as the end of the chain.",
        )

    def handle(self, *, only: list[str], accept_end: bool, **_: object) -> None:
        try:
            # A failed tenant's trail is reported as unread: its database may have been removed on purpose.
            owners = audit_trails.owners(only, states=(*audit_trails.READABLE, State.FAILED))
        except (DatabaseError, DriverError) as problem:
            raise CommandError(f"Nothing was read: {why(problem)}.", returncode=terminal.UNREACHABLE) from problem
        if accept_end:
            self._accept_end(owners)
        started, events, broken, unread = time.monotonic(), 0, 0, 0
        with terminal.progress(self.stdout, "Verifying trails") as (start, step):
            start(len(owners))
            for owner in owners:
                try:
                    verdict = audit_trails.verify(owner)
                except TrailUnreachable as problem:
                    unread += 1
                    step(f"{owner.name}: not read, {problem}")
                    self.stderr.write(f"{owner.name}: not read, {problem}")
                    continue
                events += verdict.events
                step(
                    f"{owner.name}: {terminal.counted(verdict.events, 'event')} under "
                    f"{terminal.counted(verdict.links, 'link')}, {verdict.unsealed} not sealed yet, "
                    f"{terminal.counted(len(verdict.faults), 'fault') if verdict.faults else 'no faults'}"
                )
                broken += bool(verdict.faults)
                for fault in verdict.faults:
                    self.stderr.write(f"{owner.name}: {fault}")
        seconds = max(time.monotonic() - started, 0.001)
        self.stdout.write(
            f"{terminal.counted(events, 'event')} in {seconds:.1f} s ({events / seconds:.0f} a second), "
            f"{terminal.counted(broken, 'trail')} broken, {unread} not read."
        )
        if broken:
            sys.exit(1)
        sys.exit(terminal.UNREACHABLE if unread else 0)

    def _accept_end(self, owners: list[Owner]) -> None:
        if len(owners) != 1:
            raise CommandError("--accept-end needs exactly one TENANT.", returncode=terminal.NOT_TRIED)
        try:
            number = audit_trails.accept_end(owners[0])
        except TrailUnreachable as problem:
            raise CommandError(f"{owners[0].name}: {problem}", returncode=terminal.UNREACHABLE) from problem
        self.stdout.write(f"{owners[0].name}: the chain ends with link {number}.")

"""`verify_audit`: whether the audit trails stand as they were written."""

import sys
import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError
from psycopg import Error as DriverError

from identity_platform.api.errors import ApiError
from tenants import audit_trails
from tenants.management import terminal
from tenants.schema import why
from tenants.states import State


class Command(BaseCommand):
    help = (
        "Read the audit trails and compare them with their hash chains: of the platform and of all tenants, or of those "
        "named. Finds events that were changed, removed, added or exchanged, and chains that were. Exit code 0: all "
        "chains hold; 1: at least one is broken; 3: none is broken, but at least one could not be read. "
        "Example: verify_audit acme"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("only", nargs="*", metavar="TENANT", help="Slug or id of a tenant, or `platform`.")
        parser.add_argument(
            "--accept-end",
            action="store_true",
            help="For one tenant that was restored from a backup: take the newest link that is there as the chain's end.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            # A failed tenant's trail cannot be read, and is reported: its database may have been removed on purpose.
            owners = audit_trails.owners(options["only"], states=(*audit_trails.READABLE, State.FAILED))
        except ApiError as error:
            raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
        except (DatabaseError, DriverError) as problem:
            raise CommandError(f"Nothing was read: {why(problem)}.", returncode=terminal.UNREACHABLE) from problem
        if options["accept_end"]:
            if len(owners) != 1:
                raise CommandError("--accept-end needs exactly one TENANT.", returncode=terminal.NOT_TRIED)
            try:
                number = audit_trails.accept_end(owners[0])
            except audit_trails.TrailUnreachable as problem:
                raise CommandError(f"{owners[0].name}: {problem}", returncode=terminal.UNREACHABLE) from problem
            self.stdout.write(f"{owners[0].name}: the chain ends with link {number}.")
        began, events, broken, unread = time.monotonic(), 0, 0, 0
        with terminal.progress(self.stdout, "Verifying trails") as (begun, step):
            begun(len(owners))
            for owner in owners:
                try:
                    verdict = audit_trails.verify(owner)
                except audit_trails.TrailUnreachable as problem:
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
        seconds = max(time.monotonic() - began, 0.001)
        self.stdout.write(
            f"{terminal.counted(events, 'event')} in {seconds:.1f} s ({events / seconds:.0f} a second), "
            f"{terminal.counted(broken, 'trail')} broken, {unread} not read."
        )
        if broken:
            sys.exit(1)
        sys.exit(terminal.UNREACHABLE if unread else 0)

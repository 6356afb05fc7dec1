"""`purge_expired`: what has had its time goes."""

import sys
from argparse import ArgumentParser
from collections import Counter
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from identity_platform.api.errors import ApiError
from tenants import audit_trails, retention
from tenants.management import terminal


class Command(BaseCommand):
    help = (
        "Delete expired sessions, refresh tokens, tickets, windows, attempts, codes, challenges, proofs and old "
        f"invitations, and audit events older than AUDIT_RETENTION_DAYS ({settings.AUDIT_RETENTION_DAYS}): of the "
        "platform and of all tenants, or of those named. The audit trails stay verifiable. Can be stopped and run again "
        "at any time; run it once a day. Exit code 0: done; 1: a tenant could not be reached. Example: purge_expired"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("only", nargs="*", metavar="TENANT", help="Slug or id of a tenant, or `platform`.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            owners = audit_trails.owners(options["only"])
        except ApiError as error:
            raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
        total: Counter[str] = Counter()
        failed: list[retention.Purged] = []
        try:
            with terminal.progress(self.stdout, "Purging") as (begun, step):
                begun(len(owners))
                for owner in owners:
                    purged = retention.purge(owner)
                    total.update(purged.rows)
                    if purged.problem:
                        failed.append(purged)
                    step(f"{owner.name}: {purged.problem or _listed(purged.rows)}")
        except KeyboardInterrupt:
            raise CommandError("Interrupted: run it again to go on.", returncode=terminal.INTERRUPTED) from None
        self.stdout.write(f"{len(owners) - len(failed)} of {len(owners)} done: {_listed(total)}.")
        for purged in failed:
            self.stderr.write(f"{purged.owner.name}: {purged.problem}")
        sys.exit(1 if failed else 0)


def _listed(rows: dict[str, int]) -> str:
    counted = [terminal.counted(number, kind.removesuffix("s")) for kind, number in sorted(rows.items())]
    return ", ".join(counted) or "nothing to do"

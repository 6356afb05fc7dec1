import sys
from argparse import ArgumentParser
from collections import Counter

from django.conf import settings

from tenants.journals import audit_trails
from tenants.lifecycle import retention
from tenants.management import terminal


class Command(terminal.OperatorCommand):
    help = (
        "Delete expired sessions, refresh tokens, tickets, windows, attempts, codes, challenges, verifications and old "
        f"invitations, and audit events older than AUDIT_RETENTION_DAYS ({settings.AUDIT_RETENTION_DAYS}), of the "
        "platform and of all tenants, or of those named. The audit trails stay verifiable. Can be interrupted and run again "
        "at any time; run it once a day. Exit code 0: done; 1: a tenant could not be reached. Example: purge_expired"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("only", nargs="*", metavar="TENANT", help="Slug or id of a tenant, or `platform`.")

    def handle(self, *, only: list[str], **_: object) -> None:
        owners = audit_trails.owners(only)
        total: Counter[str] = Counter()
        failed: list[retention.Purged] = []
        with terminal.progress(self.stdout, "Purging") as (start, step):
            start(len(owners))
            for owner in owners:
                purged = retention.purge(owner)
                total.update(purged.rows)
                if purged.problem:
                    failed.append(purged)
                step(f"{owner.name}: {purged.problem or _listed(purged.rows)}")
        self.stdout.write(f"{len(owners) - len(failed)} of {len(owners)} done: {_listed(total)}.")
        for purged in failed:
            self.stderr.write(f"{purged.owner.name}: {purged.problem}")
        sys.exit(1 if failed else 0)


def _listed(rows: dict[str, int]) -> str:
    counted = [terminal.counted(number, kind.removesuffix("s")) for kind, number in sorted(rows.items())]
    return ", ".join(counted) or "nothing to do"

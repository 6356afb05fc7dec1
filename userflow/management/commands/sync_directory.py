"""`sync_directory`: people from tenants' directories."""

import sys
from argparse import ArgumentParser
from typing import Any

import orjson
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, close_old_connections

from identity_platform.api.errors import ApiError
from tenants.errors import UnknownTenant
from tenants.management import terminal
from tenants.queries import tenant_named
from userflow.directory.errors import DirectoryBusy
from userflow.directory.models import BY_COMMAND, BY_SCHEDULE, SUCCEEDED, DirectoryConfig
from userflow.directory.runs import COUNTS
from userflow.directory.synchronising import Ran, directories_of, directories_to_run, log, synchronise


class Command(BaseCommand):
    help = (
        "Synchronise people from a tenant's directories (Active Directory, Entra ID): all that are enabled, or the one "
        "named with --config. For schedulers --all-due takes those of all tenants whose time has come; run it every few "
        "minutes, also on several machines. A directory that fails stops no other, and each has "
        "DIRECTORY_COMMAND_SECONDS. Can be stopped and run again at any "
        "time. Exit code 0: all done; 1: at least one failed, was refused or is being synchronised elsewhere; 2: nothing "
        "was tried. Example: sync_directory acme --dry-run"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("tenant", nargs="?", metavar="TENANT", help="A tenant's slug.")
        which.add_argument("--all-due", action="store_true", help="All tenants' enabled directories that are due.")
        which.add_argument("--all", action="store_true", help="All tenants' enabled directories, due or not.")
        parser.add_argument(
            "--config", metavar="NAME", help="Name or id of one directory of the tenant, enabled or not."
        )
        parser.add_argument("--dry-run", action="store_true", help="Say what would be done, change nothing.")
        parser.add_argument("--full", action="store_true", help="Read everything, also where changes would do.")
        parser.add_argument("--force", action="store_true", help="Switch people off however many they are.")
        parser.add_argument("--json", action="store_true", help="Print one JSON object a directory and a line.")

    def handle(self, *args: object, **options: object) -> None:
        if options["config"] and not options["tenant"]:
            raise CommandError("--config goes with a tenant.", returncode=terminal.NOT_TRIED)
        try:
            configs = self._chosen(options)
        except ApiError as error:
            raise CommandError(error.text, returncode=terminal.NOT_TRIED) from error
        if not configs and options["tenant"]:
            raise CommandError("The tenant has no enabled directory.", returncode=terminal.NOT_TRIED)
        unfinished = 0
        try:
            for config in configs:
                close_old_connections()
                unfinished += not self._synchronise(config, options)
        except KeyboardInterrupt:
            raise CommandError("Interrupted: run it again to go on.", returncode=terminal.INTERRUPTED) from None
        if not options["json"]:
            self.stdout.write(f"{len(configs) - unfinished} of {len(configs)} directories synchronised.")
        sys.exit(1 if unfinished else 0)

    def _chosen(self, options: dict[str, Any]) -> list[DirectoryConfig]:
        if options["tenant"]:
            return directories_of(tenant_id=tenant_named(options["tenant"]).pk, named=options["config"])
        return directories_to_run(due_only=options["all_due"])

    def _synchronise(self, config: DirectoryConfig, options: dict[str, Any]) -> bool:
        """One directory; gives whether it was done."""
        name = f"{config.tenant.slug}/{config.name}"

        def progress(found: int) -> None:
            if self.stdout.isatty() and not options["json"]:
                self.stdout.write(f"\r{name}: {found} objects read", ending="")
                self.stdout.flush()

        try:
            done = synchronise(
                tenant_id=config.tenant_id,
                config_id=config.pk,
                trigger=BY_COMMAND if options["tenant"] else BY_SCHEDULE,
                dry_run=options["dry_run"],
                force=options["force"],
                full=options["full"],
                seconds=settings.DIRECTORY_COMMAND_SECONDS,
                progress=progress,
            )
        except DatabaseError as problem:
            # One tenant's server that is away is no reason to pass over the others.
            self._report(
                options, name, {"state": "failed"}, f"Its database does not answer ({type(problem).__name__})."
            )
            return False
        except ApiError as error:
            # Suspended, moved or deleted since the list was made, or read by another machine: not an error.
            elsewhere = options["all_due"] and isinstance(error, DirectoryBusy | UnknownTenant)
            self._report(options, name, {"state": "busy" if isinstance(error, DirectoryBusy) else "failed"}, error.text)
            return elsewhere
        except Exception as problem:
            # What one tenant's server says, or a row of one tenant holds, is no reason to pass over the others.
            log.exception("directory_sync_broke", config_id=config.pk, tenant_id=config.tenant_id)
            reason = f"A fault of the platform ({type(problem).__name__}): see its log."
            self._report(options, name, {"state": "failed"}, reason)
            return False
        finally:
            if self.stdout.isatty() and not options["json"]:
                self.stdout.write("")
        self._tell(options, name, done)
        return done.run.state == SUCCEEDED

    def _tell(self, options: dict[str, Any], name: str, done: Ran) -> None:
        figures = {f"users_{count}": getattr(done.tally, count) for count in COUNTS}
        about = {
            "run_id": str(done.run.pk),
            "state": done.run.state,
            "dry_run": done.run.dry_run,
            "full": done.run.full,
        }
        lists = {"errors": done.tally.errors, "preview_users": done.tally.preview}
        self._report(options, name, {**about, **figures, **(lists if options["json"] else {})}, done.run.reason)
        if options["json"]:
            return
        if done.tally.preview and done.run.dry_run:
            rows = [
                (shown["action"], shown["email"], shown["name"], shown["external_id"]) for shown in done.tally.preview
            ]
            terminal.table(self.stdout, ("action", "e-mail", "name", "object"), rows)
        if done.tally.errors:
            problems = [(problem["external_id"], problem["message"]) for problem in done.tally.errors]
            terminal.table(self.stdout, ("object", "not taken because"), problems)

    def _report(self, options: dict[str, Any], name: str, facts: dict[str, object], reason: str) -> None:
        if options["json"]:
            self.stdout.write(orjson.dumps({"directory": name, **facts, "reason": reason}).decode())
            return
        figures = ", ".join(
            f"{value} {fact.removeprefix('users_')}" for fact, value in facts.items() if "users" in fact
        )
        would = " (dry run: nothing was changed)" if facts.get("dry_run") else ""
        self.stdout.write(
            f"{name}: {facts['state']}{would}{': ' + figures if figures else ''}{'. ' + reason if reason else ''}"
        )

import sys
from argparse import ArgumentParser

import orjson
from django.conf import settings
from django.core.management.base import CommandError
from django.db import DatabaseError, close_old_connections

from identity_platform.api.errors import ApiError
from tenants.errors import UnknownTenant
from tenants.lifecycle.queries import tenant_named
from tenants.management import terminal
from userflow.directory.models import BY_COMMAND, BY_SCHEDULE, SUCCEEDED, DirectoryConfig
from userflow.directory.runs import COUNTS
from userflow.directory.synchronising import Ran, directories_of, directories_to_run, log, synchronise
from userflow.errors import DirectoryBusy


class Command(terminal.OperatorCommand):
    help = (
        "Synchronize people from a tenant's directories (Active Directory, Entra ID): all enabled ones, or the one named "
        "with --config. For schedulers, --all-due takes the due directories of all tenants; run it every few minutes, "
        "also on several machines. A directory that fails does not stop the others, and each has "
        "DIRECTORY_COMMAND_SECONDS. Can be stopped and run again at any time. Exit code 0: all done; 1: at least one "
        "failed, was rejected or is being synchronized elsewhere; 2: nothing was tried. "
        "Example: sync_directory acme --dry-run"
    )
    after_interruption = "What was applied stays; the next run reads it again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("tenant", nargs="?", metavar="TENANT", help="A tenant's slug.")
        which.add_argument("--all-due", action="store_true", help="All tenants' enabled directories that are due.")
        which.add_argument("--all", action="store_true", help="All tenants' enabled directories, due or not.")
        parser.add_argument(
            "--config", metavar="NAME", help="Name or id of one directory of the tenant, enabled or not."
        )
        parser.add_argument("--dry-run", action="store_true", help="Show what would be done and change nothing.")
        parser.add_argument("--full", action="store_true", help="Read everything, not only the changes.")
        parser.add_argument("--force", action="store_true", help="Deactivate any number of people.")
        parser.add_argument("--json", action="store_true", help="Print one JSON object per directory and line.")

    def handle(
        self,
        *args: object,
        tenant: str | None = None,
        config: str | None = None,
        all_due: bool = False,
        json: bool = False,
        dry_run: bool = False,
        **options: bool,
    ) -> None:
        if config and not tenant:
            raise CommandError("--config needs a tenant.", returncode=terminal.NOT_TRIED)
        self.as_json, self.dry_run = json, dry_run
        self.full, self.force, self.due_only = options["full"], options["force"], all_due
        if tenant:
            self.trigger = BY_COMMAND
            configs = directories_of(tenant_id=tenant_named(tenant).pk, name_or_id=config)
        else:
            self.trigger = BY_SCHEDULE
            configs = directories_to_run(due_only=all_due)
        if not configs and tenant:
            raise CommandError("The tenant has no enabled directory.", returncode=terminal.NOT_TRIED)
        unfinished = 0
        for directory in configs:
            close_old_connections()
            unfinished += not self._synchronise(directory)
        if not json:
            self.stdout.write(f"{len(configs) - unfinished} of {len(configs)} directories synchronised.")
        sys.exit(1 if unfinished else 0)

    def _synchronise(self, config: DirectoryConfig) -> bool:
        """Synchronize one directory. Return whether it succeeded; one that fails must not stop the others."""
        name = f"{config.tenant.slug}/{config.name}"
        shows_progress = self.stdout.isatty() and not self.as_json

        def progress(objects_read: int) -> None:
            if shows_progress:
                self.stdout.write(f"\r{name}: {objects_read} objects read", ending="")
                self.stdout.flush()

        state, skipped = "failed", False
        try:
            done = synchronise(
                tenant_id=config.tenant_id,
                config_id=config.pk,
                trigger=self.trigger,
                dry_run=self.dry_run,
                force=self.force,
                full=self.full,
                seconds=settings.DIRECTORY_COMMAND_SECONDS,
                progress=progress,
            )
        except DatabaseError as problem:
            reason = f"Its database does not respond ({type(problem).__name__})."
        except ApiError as error:
            # Suspended, moved or deleted since the list was read, or synchronized by another machine: not an error.
            skipped = self.due_only and isinstance(error, DirectoryBusy | UnknownTenant)
            state, reason = "busy" if isinstance(error, DirectoryBusy) else "failed", error.text
        except Exception as problem:
            log.exception("directory_sync_broke", config_id=config.pk, tenant_id=config.tenant_id)
            reason = f"A fault of the platform ({type(problem).__name__}): see its log."
        else:
            self._show(name, done)
            return done.run.state == SUCCEEDED
        finally:
            if shows_progress:
                self.stdout.write("")
        self._report(name, {"state": state}, reason)
        return skipped

    def _show(self, name: str, done: Ran) -> None:
        run, tally = done.run, done.tally
        facts = {"run_id": str(run.pk), "state": run.state, "dry_run": run.dry_run, "full": run.full}
        facts |= {f"users_{count}": getattr(tally, count) for count in COUNTS}
        if self.as_json:
            self._report(name, {**facts, "errors": tally.errors, "preview_users": tally.preview}, run.reason)
            return
        self._report(name, facts, run.reason)
        if tally.preview and run.dry_run:
            rows = [(shown["action"], shown["email"], shown["name"], shown["external_id"]) for shown in tally.preview]
            terminal.table(self.stdout, ("action", "e-mail", "name", "object"), rows)
        if tally.errors:
            problems = [(problem["external_id"], problem["message"]) for problem in tally.errors]
            terminal.table(self.stdout, ("object", "not taken because"), problems)

    def _report(self, name: str, facts: dict[str, object], reason: str) -> None:
        if self.as_json:
            self.stdout.write(orjson.dumps({"directory": name, **facts, "reason": reason}).decode())
            return
        counts = ", ".join(f"{value} {fact.removeprefix('users_')}" for fact, value in facts.items() if "users" in fact)
        would = " (dry run: nothing was changed)" if facts.get("dry_run") else ""
        line = f"{name}: {facts['state']}{would}{': ' + counts if counts else ''}{'. ' + reason if reason else ''}"
        self.stdout.write(line)

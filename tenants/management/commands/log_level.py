import re
from argparse import ArgumentParser, ArgumentTypeError

from django.core.management.base import CommandError

from identity_platform.api.log_levels import LEVELS, PLATFORM, areas
from tenants import log_levels
from tenants.management import terminal


def minutes(text: str) -> int:
    """Return the duration of a level."""
    if re.fullmatch("[0-9]{1,4}", text) is None or not 1 <= int(text) <= log_levels.MOST_MINUTES:
        raise ArgumentTypeError(f"must be a whole number of minutes from 1 to {log_levels.MOST_MINUTES}")
    return int(text)


class Command(terminal.OperatorCommand):
    help = (
        "Show, set or reset the log level of all running processes on all hosts (server, tenant_worker, deliver_events), "
        "without a restart, for the platform or for one area of it. Processes apply a change within about "
        f"{log_levels.APPLIED_WITHIN_SECONDS} seconds. A level that was set ends by itself, after "
        f"{log_levels.DEFAULT_MINUTES} minutes unless --minutes says otherwise; LOG_LEVEL applies again then. "
        f"Areas: {', '.join(areas())}. Libraries keep LOG_LEVEL. Exit code 2: unknown level or area. "
        "Example: log_level set debug --area webhooks --minutes 30"
    )
    # It changes nothing outside the global database.
    allowed_while_fenced = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("do", choices=["show", "set", "reset"], metavar="show|set|reset")
        parser.add_argument("level", nargs="?", choices=LEVELS, help="With set.")
        parser.add_argument(
            "--area", choices=areas(), default=PLATFORM, help="One area; without it the whole platform."
        )
        parser.add_argument("--minutes", type=minutes, help="With set: how long the level lasts.")

    def handle(self, *, do: str, level: str | None, area: str, minutes: int | None, **_: object) -> None:
        subject = area or "the platform"
        if do == "set" and level is None:
            raise CommandError(f"Name the level: {', '.join(LEVELS)}.", returncode=terminal.NOT_TRIED)
        if do != "set" and (level or minutes):
            raise CommandError("A level and --minutes belong to set.", returncode=terminal.NOT_TRIED)
        if do == "show":
            self._show(area)
        elif level is not None:
            row = log_levels.set_level(level=level, area=area, minutes=minutes or log_levels.DEFAULT_MINUTES)
            self.stdout.write(f"The log level of {subject} is {level} until {row.until:%Y-%m-%d %H:%M:%S} UTC.")
        elif log_levels.reset_level(area=area):
            self.stdout.write(f"LOG_LEVEL applies to {subject} again.")
        else:
            self.stdout.write(f"No level was set for {subject}.")

    def _show(self, area: str) -> None:
        levels = [row for row in log_levels.list_levels() if area in (PLATFORM, row.area)]
        rows = [(row.area or "(platform)", row.level, f"{row.until:%Y-%m-%d %H:%M:%S} UTC") for row in levels]
        if rows:
            terminal.table(self.stdout, ["area", "level", "until"], rows)
        else:
            self.stdout.write("No level is set: LOG_LEVEL applies.")

from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime, timedelta

from django.core.management.base import CommandError
from django.utils.timezone import now

from tenants import operating_modes
from tenants.management import terminal
from tenants.states import Mode


def announced_end(text: str) -> datetime:
    """Return a time in the future, given in ISO 8601 (UTC unless it states an offset) or as minutes from now."""
    try:
        end = now() + timedelta(minutes=int(text)) if text.isdecimal() else datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ArgumentTypeError("must be a time such as 2030-01-31T06:30Z, or a number of minutes from now") from None
    end = end if end.tzinfo else end.replace(tzinfo=UTC)
    if end <= now():
        raise ArgumentTypeError("must be in the future")
    return end


class Command(terminal.OperatorCommand):
    help = (
        "Limit the platform, or one database server, to reads (--read-only), or close it for maintenance; end that; or show "
        "what is limited. All processes apply a change within about two seconds. Rejected requests get 503 with the code "
        "read_only or maintenance. The announced end is shown to callers; the mode lasts until `maintenance stop`. "
        "Exit code 2: unknown server. "
        "Example: maintenance start --read-only --server eu1 --until 2030-01-31T06:30Z --reason 'failover'"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("do", choices=["start", "stop", "status"], metavar="start|stop|status")
        parser.add_argument("--read-only", action="store_true", help="With start: reject writes only.")
        parser.add_argument("--server", help="A database server's name; without it the whole platform.")
        parser.add_argument(
            "--until", type=announced_end, help="With start: the announced end (ISO 8601, or minutes from now)."
        )
        parser.add_argument("--reason", default="", help="With start: for the audit log and the console.")

    def handle(
        self, *, do: str, read_only: bool, server: str | None, until: datetime | None, reason: str, **_: object
    ) -> None:
        subject = f"The database server {server}" if server else "The platform"
        if do == "start":
            if len(reason) > operating_modes.LONGEST_REASON:
                raise CommandError(
                    f"--reason: at most {operating_modes.LONGEST_REASON} characters.", returncode=terminal.NOT_TRIED
                )
            mode = Mode.READ_ONLY if read_only else Mode.MAINTENANCE
            operating_modes.start_mode(mode=mode, server=server, until=until, reason=reason)
            said = "is read-only" if read_only else "is closed for maintenance"
            self.stdout.write(
                f"{subject} {said}. End it with: maintenance stop" + (f" --server {server}" * bool(server))
            )
        elif read_only or until or reason:
            raise CommandError("--read-only, --until and --reason belong to start.", returncode=terminal.NOT_TRIED)
        elif do == "stop":
            ended = operating_modes.end_mode(server=server)
            self.stdout.write(f"{subject} is open again." if ended else f"{subject} was not limited.")
        else:
            self._show(server)

    def _show(self, server: str | None) -> None:
        modes = [
            row for row in operating_modes.list_modes() if server is None or (row.server and row.server.name == server)
        ]
        rows = [
            (
                row.server.name if row.server else "(platform)",
                row.mode,
                f"{row.until:%Y-%m-%d %H:%M} UTC" if row.until else "",
                f"{row.started_at:%Y-%m-%d %H:%M} UTC",
                row.reason,
            )
            for row in modes
        ]
        if rows:
            terminal.table(self.stdout, ["server", "mode", "announced end", "since", "reason"], rows)
        else:
            self.stdout.write("Nothing is limited.")

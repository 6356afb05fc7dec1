from argparse import ArgumentParser

from tenants.jobs import adoption
from tenants.management import terminal


class Command(terminal.OperatorCommand):
    help = (
        "Make a copy of the global database an installation of its own, for a test: it forgets the database servers of the "
        "original and their addresses, changes nothing on them, and gets a new installation id. Their tenants respond with "
        "503 here; add a server and restore them from backups. Example: detach_installation --dry-run"
    )
    allowed_while_fenced = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--keep",
            nargs="+",
            default=[],
            metavar="SERVER",
            help="Servers that were copied too, so that their databases are this copy's.",
        )
        parser.add_argument("--dry-run", action="store_true", help="Only list the servers.")
        parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation.")

    def handle(self, *, keep: list[str], dry_run: bool, yes: bool, **_: object) -> None:
        for server in adoption.servers_to_detach(keep):
            self.stdout.write(f"{server.name} at {server.host} is forgotten; nothing on it changes.")
        if dry_run:
            self.stdout.write("Nothing was changed.")
            return
        question = "This copy forgets these database servers. In production this ends the service of all their tenants."
        terminal.confirm(self.stdout, question, "detach", yes=yes)
        detached = adoption.detach(keep=keep)
        self.stdout.write(
            f"Detached from {terminal.counted(len(detached), 'database server')}. Add one with add_database_server."
        )

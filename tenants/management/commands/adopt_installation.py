from argparse import ArgumentParser

from tenants.jobs import adoption
from tenants.management import terminal


class Command(terminal.OperatorCommand):
    help = (
        "End the fence after the global database was restored, or moved to another database server: this is the installation "
        "now. Lists what the global database does not know, raises the epoch on every database server and in every tenant's "
        "database, and sets aside spare databases that belong to a tenant. Another copy of the global database is fenced from "
        "then on. Stop every other copy first. Example: adopt_installation --dry-run"
    )
    allowed_while_fenced = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only list the differences.")
        parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation.")

    def handle(self, *, dry_run: bool, yes: bool, **_: object) -> None:
        self._show(adoption.adopt(dry_run=True).differences)
        if dry_run:
            self.stdout.write("Nothing was changed.")
            return
        question = "This global database becomes the installation. Every other copy of it stops serving."
        terminal.confirm(self.stdout, question, "adopt", yes=yes)
        adopted = adoption.adopt(progress=self.stdout.write)
        self.stdout.write(
            f"Adopted with epoch {adopted.epoch}; {terminal.counted(adopted.renewed, 'tenant')} renewed. Run "
            "check_consistency and check_tenants next."
        )

    def _show(self, differences: list[adoption.Difference]) -> None:
        if not differences:
            self.stdout.write("The servers have nothing that the global database does not know.")
            return
        rows = [(each.server, each.database or "–", each.message) for each in differences]
        terminal.table(self.stdout, ("server", "database", "details"), rows)

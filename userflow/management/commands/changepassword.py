"""Set an admin user's password from the machine; in the place of Django's command of this name."""

import getpass
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from identity_platform.api.errors import ApiError
from tenants.management.terminal import NOT_TRIED
from userflow.passwords.actions import set_admin_password

TRIES = 3


class Command(BaseCommand):
    """Audited, told to the user by mail, and the end of every session, as any other change of a password."""

    help = (
        "Set the password of an admin user: it is asked for twice, every session of the user ends, and the user is told "
        "by mail. Example: changepassword ann"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username", help="username or e-mail address of the admin user")

    def handle(self, *args: Any, username: str, **options: Any) -> None:
        for _ in range(TRIES):
            try:
                password = getpass.getpass(f"New password of {username}: ")
                again = getpass.getpass("Once more: ") if password else ""
            except EOFError:
                password = again = ""
            if not password:
                raise CommandError("No password was typed: nothing was changed.", returncode=NOT_TRIED)
            if again != password:
                self.stderr.write("The two are not the same. Try again.")
                continue
            try:
                ended = set_admin_password(username=username, password=password)
            except ApiError as error:
                problems = [text for texts in (error.details or {}).values() for text in texts]
                if not problems:
                    raise CommandError(error.text, returncode=NOT_TRIED) from error
                self.stderr.write("\n".join(problems))
                continue
            self.stdout.write(f"The password of {username} is changed. Sessions that ended: {ended}.")
            return
        raise CommandError("Nothing was changed.", returncode=NOT_TRIED)

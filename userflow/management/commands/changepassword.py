"""`changepassword`: set an admin user's password; replaces Django's command of this name."""

import getpass

from django.core.management.base import CommandError, CommandParser

from identity_platform.api.errors import ApiError
from tenants.management import terminal
from tenants.management.terminal import NOT_TRIED
from userflow.passwords.actions import set_admin_password

ATTEMPTS = 3


class Command(terminal.OperatorCommand):
    """Audits the change, notifies the user by mail and ends all sessions, as any password change."""

    help = (
        "Set the password of an admin user. Asks for it twice, ends all sessions of the user and notifies the user "
        "by mail. Example: changepassword ann"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username", help="username or e-mail address of the admin user")

    def handle(self, *args: object, username: str, **options: object) -> None:
        for _ in range(ATTEMPTS):
            try:
                password = getpass.getpass(f"New password of {username}: ")
                again = getpass.getpass("Repeat password: ") if password else ""
            except EOFError:
                password = again = ""
            if not password:
                raise CommandError("No password was entered. Nothing was changed.", returncode=NOT_TRIED)
            if again != password:
                self.stderr.write("The passwords do not match. Try again.")
                continue
            try:
                ended = set_admin_password(username=username, password=password)
            except ApiError as error:
                problems = [text for texts in error.messages.values() for text in texts]
                if not problems:
                    raise CommandError(error.text, returncode=NOT_TRIED) from error
                self.stderr.write("\n".join(problems))
                continue
            self.stdout.write(f"The password of {username} is changed. Ended sessions: {ended}.")
            return
        raise CommandError("Nothing was changed.", returncode=NOT_TRIED)

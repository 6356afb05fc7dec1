"""`deliver_events` on the databases of a test, in a process that the test may kill."""

import sys


def main(database: str) -> None:
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connection

    settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = database
    call_command("deliver_events", "--threads", "4")


if __name__ == "__main__":
    main(sys.argv[1])

"""The kinds of queued requests: each finds out whether a mail is due, and queues it."""

from collections.abc import Callable, Mapping
from typing import Final

from userflow.email.actions import remind_if_waiting, send_if_waiting
from userflow.passwords.actions import mail_reset_to_admins, mail_reset_to_end_user

Work = Callable[[str, Mapping[str, object]], None]

# Called with the address, a key of `email_key`, and the values of the request, in a transaction; those of a tenant inside it.
REQUESTS: Final[Mapping[str, Work]] = {
    "admin_reset": mail_reset_to_admins,
    "end_user_reset": mail_reset_to_end_user,
    "email_proof": send_if_waiting,
    "email_reminder": remind_if_waiting,
}

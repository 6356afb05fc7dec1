"""The webhook events: one table for the outbox, the API document and the guide."""

from collections.abc import Sequence
from typing import Final

EVENTS: Final[dict[str, str]] = {
    "end_user.created": "An end user was created by registration, invitation, import or directory.",
    "end_user.updated": "Name, address, metadata or other fields changed; `changed` names them.",
    "end_user.activated": "An end user was activated.",
    "end_user.deactivated": "An end user was deactivated, and all sessions ended.",
    "end_user.erased": "An end user was erased with all related data.",
    "end_user.email_verified": "An end user has verified the address.",
    "end_user.password_changed": "An end user has changed the password.",
    "end_user.password_reset": "An end user has reset the password by a link from a mail.",
    "factor.enrolled": "An end user has enrolled a second factor or passkey.",
    "factor.removed": "An end user has removed a factor.",
    "factor.reset": "An admin has removed the factors of an end user.",
    "group.created": "A group was created.",
    "group.updated": "A group changed; `changed` names the fields.",
    "group.deleted": "A group was deleted.",
    "group.members_added": "End users were added to a group.",
    "group.members_removed": "End users were removed from a group.",
    "role.created": "A role was created.",
    "role.updated": "A role changed; `changed` names the fields.",
    "role.deleted": "A role was deleted.",
    "role.assigned": "A role was assigned to end users.",
    "role.revoked": "A role was revoked from end users.",
    "invitation.created": "An invitation was sent.",
    "invitation.accepted": "An invitation was accepted.",
    "directory.sync_finished": "A directory synchronisation has ended.",
    "import.finished": "An import of end users has ended.",
    "domain.verified": "A domain of the tenant was verified.",
    "domain.updated": "A domain became the sign-in domain, or is it no more; the issuer has changed.",
    "domain.record_lost": "The TXT record of a verified domain is gone; the domain is withdrawn after seven days.",
    "domain.withdrawn": "A domain without its TXT record was withdrawn.",
    "domain.deleted": "A domain was deleted.",
    "webhook.test": "A test requested by an admin, sent to one endpoint regardless of its events.",
}
# What a caller may read who receives the events of a kind: their payloads have the data of that kind. A kind that is not listed
# counts as everything.
READ_BY_KIND: Final[dict[str, str]] = {
    "end_user": "endusers:read",
    "factor": "endusers:read",
    "group": "endusers:read",
    "role": "roles:read",
    "invitation": "invitations:read",
    "directory": "directory:read",
    "import": "endusers:read",
    "domain": "domains:read",
    "webhook": "webhooks:read",
}
ALL: Final = "*"
TEST: Final = "webhook.test"
# What an endpoint may subscribe to: an event, all events of one kind, or everything.
FILTERS: Final[tuple[str, ...]] = (
    ALL,
    *sorted({f"{event.partition('.')[0]}.*" for event in EVENTS if event != TEST}),
    *(event for event in EVENTS if event != TEST),
)


def filters_for(event: str) -> Sequence[str]:
    """Return the filters that match this event. Raises KeyError for an unknown event, which is a bug."""
    EVENTS[event]
    return (ALL, f"{event.partition('.')[0]}.*", event)

"""The events that a tenant's own systems can hear of: one table for the outbox, the API document and the guide."""

from collections.abc import Sequence
from typing import Final

EVENTS: Final[dict[str, str]] = {
    "end_user.created": "A person was stored: by registration, invitation, import or directory.",
    "end_user.updated": "Name, address, metadata or other members changed; `changed` names them.",
    "end_user.activated": "A person was switched on.",
    "end_user.deactivated": "A person was switched off, and all sessions ended.",
    "end_user.erased": "A person was removed with everything bound to it.",
    "end_user.email_verified": "A person has proven to own the address.",
    "end_user.password_changed": "A person has chosen another password, knowing the old one.",
    "end_user.password_reset": "A person has chosen another password by a link from a mail.",
    "factor.enrolled": "A person has a new second factor or passkey.",
    "factor.removed": "A person has removed a factor.",
    "factor.reset": "An admin has removed factors of a person.",
    "group.created": "A group was made.",
    "group.updated": "A group changed; `changed` names the members.",
    "group.deleted": "A group was removed.",
    "group.members_added": "People have joined a group.",
    "group.members_removed": "People have left a group.",
    "role.created": "A role was made.",
    "role.updated": "A role changed; `changed` names the members.",
    "role.deleted": "A role was removed.",
    "role.assigned": "People were given a role.",
    "role.revoked": "A role was taken from people.",
    "invitation.created": "Somebody was invited.",
    "invitation.accepted": "An invited person has accepted.",
    "directory.sync_finished": "A run of the directory synchronisation has ended.",
    "import.finished": "An import of end users has ended.",
    "webhook.test": "A test that an admin has asked for; sent to that one endpoint, whatever it listens to.",
}
ALL: Final = "*"
TEST: Final = "webhook.test"
# What an endpoint may listen to: an event, all of one kind, or everything.
FILTERS: Final[tuple[str, ...]] = (
    ALL,
    *sorted({f"{event.partition('.')[0]}.*" for event in EVENTS if event != TEST}),
    *(event for event in EVENTS if event != TEST),
)


def filters_for(event: str) -> Sequence[str]:
    """The filters that let this event through. Raises KeyError for an event that is not in the table: a defect of ours."""
    EVENTS[event]
    return (ALL, f"{event.partition('.')[0]}.*", event)

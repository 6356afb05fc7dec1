"""Events about an end user in sentences, with the names of who and what they mention."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from console.audit_logs.action_labels import label_of
from console.frame import labels
from console.frame.access import Context, Staff
from console.frame.records import NOTHING, Text
from console.metrics.tables import with_actors
from identity_platform.audit.models import TenantEvent
from tenants.models import Tenant
from userflow.accounts.models import Client, EndUser, Group, Role
from userflow.accounts.principals import ADMIN, CLIENT, OPERATOR
from userflow.ids import FORM

LOOK: Final = "end_user.viewed"
SHOWN_EVENTS: Final = 25
# Kinds of factors, and what else can be tried too often.
FACTORS: Final[Mapping[str, Text]] = {
    **labels.FACTORS,
    "password": _("password"),
    "all": _("all factors"),
    "email": _("verification code"),
}
REASONS: Final[Mapping[str, Text]] = {
    "wrong_password": _("wrong password"),
    "no_password": _("the user has no password"),
    "deactivated": _("the user is deactivated"),
    "client_inactive": _("the application is deactivated"),
}
# The user is the subject. Other actors are named behind the sentence.
SENTENCES: Final[Mapping[str, Text]] = {
    "access.rejected": _("A request was rejected"),
    "consent.granted": _("Allowed %(application)s access"),
    "consent.revoked": _("Disconnected %(application)s"),
    "device.forgotten": _("A remembered browser was forgotten"),
    "device.remembered": _("A browser was remembered: it skips the second step"),
    "device.reused": _("A copied cookie of a remembered browser was rejected"),
    "device.used": _("Skipped the second step in a remembered browser"),
    "email.change_undone": _("A change of the e-mail address was undone"),
    "email.proof_refused": _("Entered a wrong code to verify the e-mail address"),
    "email.proof_sent": _("Verification mail sent"),
    "email.proven": _("E-mail address verified"),
    "end_user.activated": _("Activated"),
    "end_user.data_downloaded": _("All data of the user downloaded"),
    "end_user.deactivated": _("Deactivated"),
    "end_user.registered": _("Registered"),
    "end_user.unlocked": _("Unlocked: failed attempts were reset"),
    "end_user.updated": _("Record changed: %(fields)s"),
    "enrollment_pass.issued": _("Enrollment pass issued"),
    "factor.enrolled": _("Factor added: %(factor)s"),
    "factor.enrollment_refused": _("A new factor was rejected: %(factor)s"),
    "factor.refused": _("Second step rejected: %(factor)s"),
    "factor.regenerated": _("New backup codes created"),
    "factor.removed": _("Factor removed: %(factor)s"),
    "factor.renamed": _("Factor renamed: %(factor)s"),
    "factor.replaced": _("Factor replaced: %(factor)s"),
    "factor.reset": _("All second factors were reset"),
    "factor.verified": _("Verified with %(factor)s"),
    "group.joined": _("Added to the group %(group)s"),
    "group.left": _("Removed from the group %(group)s"),
    "password.changed": _("Changed the password"),
    "password.refused": _("Entered a wrong current password"),
    "password.reset": _("Set a new password with the link of a mail"),
    "password.reset_asked": _("Password reset requested"),
    "role.bound": _("Got the role %(role)s"),
    "role.unbound": _("Lost the role %(role)s"),
    "seal.broken": _("A stored factor could not be decrypted: %(factor)s"),
    "session.ended": _("Sessions ended"),
    "session.stepped_up": _("Confirmed the sign-in with %(methods)s"),
    "signin.address_not_proven": _("Sign-in rejected: the e-mail address is not verified"),
    "signin.factor_missing": _("Password accepted, but a second factor must be added first"),
    "signin.first_step": _("Password accepted, second step requested"),
    "signin.refused": _("Sign-in rejected: %(reason)s"),
    "signin.succeeded": _("Signed in with %(methods)s"),
    "sms.requested": _("Requested a code by SMS"),
}
Event = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Entry:
    """An event as the page shows it. `actor` is empty for the user; `event` has the raw values."""

    at: object
    sentence: str
    actor: Text
    event: Context


def newest_events(user: EndUser) -> Sequence[Event]:
    """Return the newest events about the user and by the user; each query has its own index."""
    key = str(user.pk)
    # Views by staff would push all other events off the page; the audit log lists them.
    of = TenantEvent.objects.filter(target_id=key).exclude(action=LOOK).order_by("-id").values()[:SHOWN_EVENTS]
    by = TenantEvent.objects.filter(actor_id=key).exclude(target_id=key).order_by("-id").values()[:SHOWN_EVENTS]
    return sorted([*of, *by], key=lambda event: -event["id"])[:SHOWN_EVENTS]


def timeline(rows: Sequence[Event], *, user: EndUser, tenant: Tenant, staff: Staff) -> list[Entry]:
    """Return the events in sentences. The number of statements does not depend on the number of events."""
    names = _names(rows, tenant, staff)
    shown = with_actors(rows, staff)
    return [Entry(row["at"], sentence(row, names), _actor(row, user, names), row) for row in shown]


def sentence(row: Event, names: Mapping[str, str]) -> str:
    """Return what happened: a sentence, or what the action is called in the audit log."""
    action, details = str(row["action"]), row["details"]
    details = details if isinstance(details, Mapping) else {}
    text = SENTENCES.get(action)
    if text is None:
        return label_of(action)
    reason, kind = str(details.get("reason", "")), str(details.get("kind", ""))
    return str(text) % {
        "methods": labels.methods(map(str, _list(details.get("proven") or details.get("amr")))),
        "factor": FACTORS.get(kind, kind) or _("second factor"),
        "reason": REASONS.get(reason) or _("wrong password, or the sign-in is not allowed"),
        "fields": ", ".join(map(str, _list(details.get("changed")))) or NOTHING,
        "group": names.get(str(details.get("group_id"))) or _("without a name here"),
        "role": names.get(str(details.get("role_id"))) or _("without a name here"),
        "application": names.get(str(row["target_id"])) or _("an application"),
    }


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def _actor(row: Event, user: EndUser, names: Mapping[str, str]) -> Text:
    kind, key = str(row["actor_kind"]), str(row["actor_id"])
    if key == str(user.pk):
        return ""
    if name := row.get("actor") or names.get(key):
        return str(name)
    unnamed: Mapping[str, Text] = {
        OPERATOR: _("an operator"),
        ADMIN: _("an administrator"),
        CLIENT: _("an application"),
        "system": _("the platform"),
    }
    # What unknown callers do is said by the sentence.
    return unnamed.get(kind, "")


def _names(rows: Iterable[Event], tenant: Tenant, staff: Staff) -> dict[str, str]:
    """Return the names of groups, roles and applications that the events mention, by id, as far as the reader may see them."""
    ids_by_kind: dict[str, set[UUID]] = {"group_id": set(), "role_id": set(), "client": set()}
    for row in rows:
        details = row["details"]
        for member in ("group_id", "role_id"):
            _add(ids_by_kind[member], details.get(member) if isinstance(details, Mapping) else None)
        for kind, key in (("actor_kind", "actor_id"), ("target_kind", "target_id")):
            _add(ids_by_kind["client"], row[key] if row[kind] == CLIENT else None)
    groups, roles, clients = ids_by_kind.values()
    names: dict[str, str] = {}
    for permission, ids, objects in (
        ("groups:read", groups, Group.objects.filter(pk__in=groups)),
        ("roles:read", roles, Role.objects.filter(pk__in=roles)),
        ("clients:read", clients, Client.objects.filter(pk__in=clients, tenant_id=tenant.pk)),
    ):
        if ids and staff.may(permission):
            names |= {str(key): name for key, name in objects.values_list("pk", "name")}
    return names


def _add(ids: set[UUID], value: object) -> None:
    text = str(value or "")
    if FORM.fullmatch(text):
        ids.add(UUID(text))

"""Why a user cannot sign in, in words: each cause with what to do, linked to the page that does it; and the buttons."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from console.frame.access import Context, Staff
from console.frame.records import Button, Text, Tone, moment
from console.people.timeline import FACTORS, sentence
from openid.account.data import DATA_NEEDS
from tenants.models import Tenant
from userflow.accounts.models import EndUser
from userflow.accounts.permissions_catalogue import FACTORS as RESET_FACTORS
from userflow.credentials import attempts
from userflow.diagnosis.actions import Cause, Diagnosis, Finding

_FAILURES: Final = {
    "password": ngettext_lazy("%(number)s wrong password", "%(number)s wrong passwords", "number"),
    "webauthn": ngettext_lazy("%(number)s rejected passkey", "%(number)s rejected passkeys", "number"),
}
_WRONG_CODES: Final = ngettext_lazy(
    "%(number)s wrong code (%(factor)s)", "%(number)s wrong codes (%(factor)s)", "number"
)
# Where the attempts came from, by budget.
_ORIGINS: Final[Mapping[str, Text]] = {
    attempts.UNKNOWN_NETWORK: _("from a network without an earlier sign-in"),
    attempts.LOGIN: _("from a network without an earlier sign-in"),
    attempts.KNOWN_NETWORK: _("from a network that the user has signed in from"),
    attempts.LOGIN_KNOWN_NETWORK: _("from a network that the user has signed in from"),
    attempts.SIGNED_IN: _("in a session of the user"),
}


@dataclass(frozen=True, slots=True)
class Remark:
    """A cause in words, what to do, and the pages that do it."""

    text: Text
    advice: Text = ""
    tone: Tone = Tone.BAD
    buttons: list[Button] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Reader:
    """What the remarks and buttons of a page depend on."""

    user: EndUser
    tenant: Tenant
    staff: Staff
    diagnosis: Diagnosis
    # A new address waits for verification.
    pending: bool
    # A directory has deactivated the user.
    by_directory: bool

    def to(self, page: str, title: Text, permission: str, variant: str = "default") -> list[Button]:
        """Return the button of a page of the user, if the reader may open it."""
        if not self.staff.may(permission):
            return []
        return [Button(title, reverse(f"admin:{page}", args=[self.user.pk]), variant)]

    def reset_password(self, variant: str = "default") -> list[Button]:
        return self.to("reset_person_password", _("Send password reset"), "endusers:write", variant)

    def verify(self) -> list[Button]:
        return [
            *self.to("resend_person_verification", _("Resend verification mail"), "endusers:write"),
            *([] if self.user.email_verified_at else self.mark_verified()),
        ]

    def mark_verified(self) -> list[Button]:
        return self.to("verify_person", _("Mark as verified"), "endusers:write")

    def unlock(self) -> list[Button]:
        return self.to("unlock_person", _("Unlock"), "endusers:write")

    def issue_pass(self) -> list[Button]:
        # The action rejects these: a factor needs an active user and, where the tenant says so, a verified address.
        if not self.user.active or any(
            finding.cause is Cause.ADDRESS_NOT_VERIFIED for finding in self.diagnosis.findings
        ):
            return []
        return self.to("issue_person_pass", _("Issue enrollment pass"), RESET_FACTORS)


def remarks(reader: Reader) -> list[Remark]:
    """Return the causes in words, most important first; one remark says so if there is none."""
    causes = [_remark(finding, reader) for finding in reader.diagnosis.findings]
    return causes if reader.diagnosis.is_prevented else [_NOTHING, *causes]


_NOTHING: Final = Remark(
    _("Nothing on this account prevents a sign-in."),
    _(
        "If it fails nevertheless, compare the e-mail address letter by letter and check that the application is active. "
        "After very many wrong passwords a whole network has to wait up to ten minutes."
    ),
    Tone.GOOD,
)


def _remark(finding: Finding, reader: Reader) -> Remark:
    user = reader.user
    match finding.cause:
        case Cause.LOCKED:
            locked = _("Locked until %(at)s: %(failures)s %(origin)s.") % _attempts(finding)
            tone = Tone.BAD if finding.prevents_sign_in else Tone.WARNING
            return Remark(locked, _("The lock ends by itself, or unlock the user."), tone, reader.unlock())
        case Cause.WRONG_SECRET:
            wrong = _("%(failures)s %(origin)s, the last one at %(at)s.") % _attempts(finding)
            helps = reader.reset_password() if finding.factor == attempts.PASSWORD and user.active else []
            return Remark(wrong, "", Tone.WARNING, helps)
        case Cause.TENANT_SUSPENDED:
            return Remark(
                _("The tenant is suspended, so none of its users can sign in."),
                _("It must be resumed."),
                buttons=_to_tenant(reader),
            )
        case Cause.TENANT_UNAVAILABLE:
            text = _("The tenant is not available at the moment, so none of its users can sign in.")
            return Remark(
                text,
                _("Wait until its migration or move has finished, or see on its page what failed."),
                buttons=_to_tenant(reader),
            )
        case Cause.DEACTIVATED:
            activate = reader.to("person_activity", _("Activate"), "endusers:write")
            if reader.by_directory:
                advice = _("Enable the user in the directory: the next synchronization activates the user here.")
                return Remark(_("The directory of the user has deactivated the account."), advice, buttons=activate)
            return Remark(
                _("The user is deactivated."), _("Activate the user if they should have access."), buttons=activate
            )
        case _:
            return _of_credentials(finding, reader)


def _of_credentials(finding: Finding, reader: Reader) -> Remark:
    match finding.cause:
        case Cause.ADDRESS_NOT_VERIFIED:
            text = _("The e-mail address is not verified, and this tenant requires that.")
            return Remark(text, _("Send the mail again, or mark the address as verified."), buttons=reader.verify())
        case Cause.NO_PASSWORD:
            text = _("The user has never set a password and has no passkey.")
            return Remark(text, _("Send a link to set one."), buttons=reader.reset_password())
        case Cause.PASSWORD_ELSEWHERE:
            text = _("The user has no password on this platform and no passkey.")
            return Remark(text, _("Sign in where the user comes from: see Identity source."))
        case _:
            text = _("The tenant requires a second factor, and the user has none.")
            advice = _("The user adds one at the next sign-in. If that is not possible, issue an enrollment pass.")
            return Remark(text, advice, Tone.WARNING, reader.issue_pass())


def _attempts(finding: Finding) -> Context:
    template = _FAILURES.get(finding.factor, _WRONG_CODES)
    factor = FACTORS.get(finding.factor, finding.factor)
    return {
        "failures": template % {"number": finding.failures, "factor": factor},
        "origin": _ORIGINS.get(finding.budget, ""),
        "at": moment(finding.at),
    }


def _to_tenant(reader: Reader) -> list[Button]:
    if not (reader.staff.is_operator and reader.staff.may("tenants:read")):
        return []
    return [Button(_("Open the tenant's page"), reverse("admin:tenants_tenant_change", args=[reader.tenant.pk]))]


def rejections(diagnosis: Diagnosis) -> Iterator[Context]:
    """Yield the newest rejected sign-ins: when, why and from where."""
    for rejection in diagnosis.rejections or ():
        row = {"action": rejection.action, "details": rejection.details, "target_id": ""}
        yield {"at": rejection.at, "text": sentence(row, {}), "address": rejection.address}


def button_groups(reader: Reader, shown: list[Remark]) -> list[tuple[Text, list[Button]]]:
    """Return the buttons of the user's page: what helps beside the remarks that are shown, the record, and the access."""
    user, staff = reader.user, reader.staff
    offered = [button.link for remark in shown for button in remark.buttons]
    others = reader.verify() if user.active and (reader.pending or not user.email_verified_at) else []
    others += [] if user.mfa_methods else reader.issue_pass()
    helps = reader.reset_password("primary") if user.active else []
    helps += [button for button in others if button.link not in offered]
    record = reader.to("edit_person", _("Edit"), "endusers:write")
    if all(map(staff.may, DATA_NEEDS)):
        record += reader.to("download_person", _("Download data"), "endusers:read")
    ends = reader.to("end_person_sessions", _("End all sessions"), "sessions:write")
    if user.mfa_methods and user.active:
        ends += reader.to("reset_person_factors", _("Reset second factors"), RESET_FACTORS)
    ends += reader.to("person_activity", _("Deactivate") if user.active else _("Activate"), "endusers:write")
    ends += reader.to("erase_person", _("Erase"), "endusers:delete", "danger")
    groups = ((_("Help with signing in"), helps), (_("Record"), record), (_("Access"), ends))
    return [(label, buttons) for label, buttons in groups if buttons]

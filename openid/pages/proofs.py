"""Pages that ask for one proof: a code, a passkey or the password."""

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.translation import gettext_lazy as _

from identity_platform.api.errors import ApiError
from mfa.factors import BACKUP_CODE, SMS, TOTP, WEBAUTHN
from openid.pages import forms
from openid.pages.journey import JourneyPage
from openid.pages.journey_steps import Steps
from openid.pages.page import Context, FormPage

PASSWORD: Final = "password"


class ProofMethod(NamedTuple):
    """A kind of proof: its form, the field that has it, and its name on pages."""

    form: type[forms.PageForm]
    field: str
    label: object


PROOF_METHODS: Final[dict[str, ProofMethod]] = {
    WEBAUTHN: ProofMethod(forms.PasskeyForm, "credential", _("Passkey")),
    TOTP: ProofMethod(forms.TotpForm, "code", _("Authenticator app")),
    SMS: ProofMethod(forms.SmsForm, "sms_code", _("Text message")),
    BACKUP_CODE: ProofMethod(forms.BackupCodeForm, "backup_code", _("Backup code")),
    PASSWORD: ProofMethod(forms.PasswordForm, "password", _("Password")),
}


class ProofPage(FormPage, JourneyPage):
    """A page that asks a user for one proof, with links to the other ways and a button that sends a text message."""

    template = "proof"
    title = _("Confirm that it is you")
    # For the options of a passkey's ceremony (`sign_in.PasskeyOptions`).
    stage: ClassVar[str]

    def post(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Check the proof, or send a text message."""
        return self._send() if self.kind == SMS and "send" in request.POST else super().post(request)

    def new_form(self, data: QueryDict | None = None) -> forms.PageForm:
        return PROOF_METHODS[self.kind].form(data)

    @property
    def kind(self) -> str:
        """Return the way that the address of the page names, else the strongest one that the user has."""
        method, ordered = self.request.GET.get("method"), [kind for kind in PROOF_METHODS if kind in self.kinds]
        return method if method is not None and method in ordered else ordered[0]

    @property
    def kinds(self) -> Sequence[str]:
        """Return the ways that count for this user; passkeys if no other can be used, for the page that says so."""
        return self.usable or [WEBAUTHN]

    @property
    def usable(self) -> list[str]:
        """Return the methods of the user that can be used at this address."""
        raise NotImplementedError

    def href_of(self, kind: str) -> str:
        """Return the address of this page for another way."""
        raise NotImplementedError

    def send_code(self) -> Steps:
        """Send a code and return the steps with its phone. Raises what the action raises."""
        raise NotImplementedError

    def _send(self) -> HttpResponse:
        try:
            self.journey_steps = self.send_code().with_notice("code_sent")
        except ApiError as error:
            return self.show(forms.SmsForm(), error)
        return self.again()

    def context(self) -> Context:
        """Return what all these pages show. Each adds `who`, `phone` and whether methods work at another address only."""
        kinds = self.kinds
        others = [(name, way) for name, way in PROOF_METHODS.items() if name in kinds and name != self.kind]
        return {
            **self.application(),
            "kind": self.kind,
            "others": [(self.href_of(name), way.label) for name, way in others],
            "action": self.href_of(self.kind),
            "can_send": self.kind == SMS,
            "stage": self.stage,
        }

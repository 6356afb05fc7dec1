"""Pages that ask for one of several proofs, and the actions that check them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from django import forms
from django.conf import settings
from django.http import HttpRequest

from console.frame.access import Context
from console.frame.confirm import ConfirmView
from console.signin import errors, sign_in_state
from console.signin.forms import BackupCodeForm, CodeForm, PasskeyForm, PasswordForm
from identity_platform.api.errors import ApiError
from mfa.completion import Verified
from mfa.factors import BACKUP_CODE, TOTP, WEBAUTHN
from mfa.stepup.actions import StepUp, step_up
from mfa.totp import actions as totp
from mfa.webauthn import authentication as passkeys
from userflow.accounts.principals import Principal
from userflow.accounts.realms import ADMINS
from userflow.credentials import tickets
from userflow.errors import NotSignedInByTicket
from userflow.signin.caller import Caller

PASSWORD: Final = "password"
FORMS: Final[dict[str, tuple[str, type[forms.Form]]]] = {
    WEBAUTHN: ("credential", PasskeyForm),
    TOTP: ("code", CodeForm),
    BACKUP_CODE: ("backup_code", BackupCodeForm),
    PASSWORD: ("password", PasswordForm),
}
# Their fields in mfa.stepup.actions.
STEP_UP_FIELDS: Final = {WEBAUTHN: "response", TOTP: "code", BACKUP_CODE: "backup_code", PASSWORD: "password"}


def passkeys_possible() -> bool:
    """Return whether the console has a relying party for passkeys."""
    return bool(settings.CONSOLE_RP_ID and settings.CONSOLE_ORIGINS)


@dataclass(slots=True)
class ProofForms:
    """The forms of a page by kind of proof, and the kind that was sent."""

    forms: dict[str, forms.Form]
    sent: str | None

    @classmethod
    def of(cls, request: HttpRequest, kinds: list[str]) -> Self:
        """Return forms for these kinds; the form whose field is in the request is bound."""
        sent = next((kind for kind in kinds if kind in FORMS and FORMS[kind][0] in request.POST), None)
        made = {
            kind: FORMS[kind][1](request.POST if kind == sent else None, auto_id=f"id_{kind}_%s")
            for kind in kinds
            if kind in FORMS
        }
        return cls(made, sent)

    def is_valid(self) -> bool:
        """Return whether a form was sent and is valid."""
        return self.sent is not None and self.forms[self.sent].is_valid()

    def reject(self, error: ApiError) -> None:
        """Show an error at the form that was sent."""
        assert self.sent is not None  # only what was sent can be rejected
        errors.add_to(self.forms[self.sent], error)

    def context(self) -> dict[str, object]:
        return {
            "passkey_form": self.forms.get(WEBAUTHN),
            "code_form": self.forms.get(TOTP),
            "backup_code_form": self.forms.get(BACKUP_CODE),
            "password_form": self.forms.get(PASSWORD),
            "opened": self.sent,
            "passkeys": passkeys_possible(),
        }


def step_up_by(proof_forms: ProofForms, *, principal: Principal) -> StepUp:
    """Step up the session with the sent proof. Raises what `step_up` raises, which counts every attempt."""
    assert proof_forms.sent is not None  # asked after is_valid
    given = proof_forms.forms[proof_forms.sent].cleaned_data[FORMS[proof_forms.sent][0]]
    return step_up(principal=principal, proof={STEP_UP_FIELDS[proof_forms.sent]: given})


class ProofConfirmView(ConfirmView):
    """A page whose form carries a proof. Its form class is a ProofForm."""

    template_name = "console/signin/proof.html"

    def get_form_kwargs(self) -> Context:
        methods = self.staff.principal.user["mfa_methods"]
        has_proof = sign_in_state.has_proof(self.request)
        known = {"has_proof": has_proof, "has_factor": bool(methods) or has_proof, "has_app": TOTP in methods}
        return {**super().get_form_kwargs(), **known}

    def get_context_data(self, **kwargs: object) -> Context:
        has_proof = sign_in_state.has_proof(self.request)
        by_factor = bool(self.staff.principal.user["mfa_methods"]) and not has_proof
        reauthenticate = sign_in_state.with_next("admin:reauthenticate", self.request.get_full_path())
        return {
            **super().get_context_data(**kwargs),
            "has_proof": has_proof,
            "by_factor": reauthenticate if by_factor else "",
        }


def proof_in(request: HttpRequest, typed: Mapping[str, object]) -> dict[str, str]:
    """Return the proof in the form, or the token of a recent step-up, which works once."""
    given = {name: str(typed[name]) for name in ("current_password", "code") if typed.get(name)}
    if given:
        return given
    token = sign_in_state.take_proof(request)
    return {"proof_token": token} if token else {}


def verify(proof_forms: ProofForms, *, email: str, caller: Caller, mfa_token: str) -> Verified:
    """Check the second step that was sent; return it with the sign-in that it completes.

    Raises what `verify_totp` and `finish_authentication` raise, which count every attempt.
    """
    kind = proof_forms.sent
    assert kind is not None  # asked after is_valid
    fields = proof_forms.forms[kind].cleaned_data
    if kind == WEBAUTHN:
        return passkeys.finish_authentication(
            realm=ADMINS, tenant_id=None, email=email, response=fields["credential"], caller=caller, mfa_token=mfa_token
        )
    # Their only field is the argument.
    return totp.verify_totp(realm=ADMINS, tenant_id=None, email=email, caller=caller, mfa_token=mfa_token, **fields)


def may_try_again(ticket: str) -> bool:
    """Return whether the pending sign-in allows another attempt."""
    try:
        tickets.find_ticket(ADMINS, ticket, tickets.SECOND_STEP)
    except NotSignedInByTicket:
        return False
    return True

"""The second step of a sign-in: a passkey, a code of an app, a text message, or a backup code."""

from dataclasses import replace

from django.http import HttpRequest, HttpResponse
from django.utils.functional import cached_property

from identity_platform.api.email_addresses import email_key
from identity_platform.api.errors import ApiError
from mfa.completion import Verified
from mfa.factors import SMS, WEBAUTHN
from mfa.sms.actions import request_sms_code, verify_sms_code
from mfa.totp.actions import verify_totp
from mfa.webauthn.authentication import finish_authentication
from mfa.webauthn.relying_party import usable_methods
from openid.pages import forms
from openid.pages.journey_steps import Steps
from openid.pages.page import Context
from openid.pages.proofs import PROOF_METHODS, ProofPage
from openid.pages.sign_in import SECOND_STEP
from userflow.accounts.models import EndUser
from userflow.accounts.realms import END_USERS
from userflow.credentials import tickets
from userflow.errors import NotSignedInByTicket
from userflow.signin.caller import Caller
from userflow.signin.remembered_browsers import lifetime, remember_device


class SecondStepPage(ProofPage):
    """Ask for a second factor after a right password."""

    stage = SECOND_STEP
    needed = "mfa_token"

    @property
    def account(self) -> str:
        return f"{self.journey_steps.email} {self.journey_steps.mfa_token}" if self.journey_steps.mfa_token else ""

    def get(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Show the form of one method and links to the others."""
        return super().get(request) if self._may_try() else self._start_again()

    def post(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Check the factor, or send a text message."""
        return super().post(request) if self._may_try() else self._start_again()

    def submit(self, form: forms.PageForm) -> HttpResponse:
        """Check the factor, begin the session, and remember the browser if the user wants it."""
        try:
            signed_in = self._verify(form).signed_in
        except ApiError:
            if not self._may_try():
                return self._start_again()
            raise
        assert signed_in is not None  # the ticket was good, so the sign-in is complete
        response = self.enter(signed_in)
        if "remember" not in self.request.POST:
            return response
        with self.entered():
            device = remember_device(session_id=signed_in.session.pk, replaced=self.device_cookie)
        return response if device is None else self.keep_device(response, device)

    @cached_property
    def usable(self) -> list[str]:
        with self.entered():
            return usable_methods(
                self.journey_steps.methods, EndUser.objects.filter(email_key=email_key(self.journey_steps.email))
            )

    def href_of(self, kind: str) -> str:
        return self.href("signin/verify", method=kind)

    def _may_try(self) -> bool:
        """Return whether a sign-in waits and allows another attempt."""
        if not self.journey_steps.mfa_token or not self.journey_steps.methods:
            return False
        try:
            with self.entered():
                tickets.find_ticket(END_USERS, self.journey_steps.mfa_token, tickets.SECOND_STEP)
        except NotSignedInByTicket:
            return False
        return True

    def _start_again(self) -> HttpResponse:
        if self.journey_steps.mfa_token:
            self.journey_steps = replace(self.journey_steps.only_email(self.journey_steps.email), notice="expired")
        return self.to("signin")

    def _verify(self, form: forms.PageForm) -> Verified:
        """Check the factor that was sent. Raises what the factor's action raises, which counts every attempt."""
        way, email, token = PROOF_METHODS[self.kind], self.journey_steps.email, self.journey_steps.mfa_token
        sent, tenant_id, caller = form.cleaned_data[way.field], self.tenant.tenant_id, Caller(delivery=self.delivery)
        if self.kind == WEBAUTHN:
            return finish_authentication(
                realm=END_USERS, tenant_id=tenant_id, email=email, response=sent, caller=caller, mfa_token=token
            )
        if self.kind == SMS:
            return verify_sms_code(
                tenant_id=tenant_id, client_id=None, email=email, code=sent, caller=caller, mfa_token=token
            )
        factor_field = {way.field: sent}
        return verify_totp(
            realm=END_USERS, tenant_id=tenant_id, email=email, caller=caller, mfa_token=token, **factor_field
        )

    def send_code(self) -> Steps:
        sent = request_sms_code(
            tenant_id=self.tenant.tenant_id,
            client_id=None,
            email=self.journey_steps.email,
            caller=Caller(),
            mfa_token=self.journey_steps.mfa_token,
        )
        return replace(self.journey_steps, phone=sent.phone_display)

    def context(self) -> Context:
        return {
            **super().context(),
            "who": self.journey_steps.email,
            "phone": self.journey_steps.phone,
            "elsewhere": self.usable != list(self.journey_steps.methods),
            "remember_days": lifetime(self.tenant).days,
            "remember": "remember" in self.request.POST,
        }

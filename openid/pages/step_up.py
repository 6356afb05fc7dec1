"""Prove a session again: for an application that requires it, or for a change of the account."""

import re
import time
from dataclasses import replace
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.utils.functional import cached_property
from django.utils.translation import gettext as _

from identity_platform.api.errors import ApiError
from mfa.caller import Caller
from mfa.factors import SMS, WEBAUTHN
from mfa.sms.actions import request_sms_code
from mfa.stepup.actions import PASSWORD as PASSWORD_FIELD
from mfa.stepup.actions import proof_token_for, step_up
from mfa.webauthn.relying_party import usable_methods
from openid import browser
from openid.pages import errors, forms
from openid.pages.journey import SignedInPage
from openid.pages.proofs import PASSWORD, WAYS, chosen_way, other_ways
from openid.pages.sign_in import STEP_UP
from tenants.context import in_tenant
from userflow.accounts.models import EndUser
from userflow.sessions.browser import rotate_cookie
from userflow.signin.step_up import PROOF_TOKEN_SECONDS

# Pages that lead here and back: those of the account, and those that add a factor.
RETURNS: Final = re.compile(r"security|password|email|delete|remove/[0-9a-f-]{36}|enroll(/(app|passkey|phone))?")


class StepUpPage(SignedInPage):
    """Ask for a factor, or for the password of a user who has no factor."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show the form of one method and links to the others. A user without a factor enrolls one first.

        Only a session that was verified lately may do that: otherwise the password is asked for before.
        """
        if not self.user.mfa_methods and self.pending is not None and self.me.is_fresh():
            return self.to("enroll", own="1")
        return self._page(WAYS[self.kind].form())

    def post(self, request: HttpRequest) -> HttpResponse:
        """Check the proof, raise the session and give it a new cookie."""
        if self.kind == SMS and "send" in request.POST:
            return self._send()
        form = WAYS[self.kind].form(request.POST)
        if not form.is_valid():
            return self._page(form)
        sent = form.cleaned_data[WAYS[self.kind].field]
        field = {WEBAUTHN: "response", PASSWORD: PASSWORD_FIELD}.get(self.kind, WAYS[self.kind].field)
        try:
            raised = step_up(principal=self.me, proof={field: sent}, user_agent=self.agent)
            if self.back:
                proof = proof_token_for(principal=self.me, verified=raised.verified)
                self.steps = replace(self.steps, proof=proof, proof_until=time.time() + PROOF_TOKEN_SECONDS)
        except ApiError as error:
            errors.add_to(form, error)
            return self._page(form, error)
        self.steps = replace(self.steps, own_phone="")
        response = self._next()
        with in_tenant(self.tenant.tenant_id):
            browser.set_session_cookie(response, self.tenant.tenant_id, rotate_cookie(self.own))
        return response

    @cached_property
    def usable(self) -> list[str]:
        """Return the methods of the user that can be used at this address."""
        with in_tenant(self.tenant.tenant_id):
            return usable_methods(self.user.mfa_methods, EndUser.objects.filter(pk=self.user.pk))

    @property
    def kinds(self) -> list[str]:
        """Return the methods that count for this user; passkeys if no other can be used, for the page that says so."""
        return (self.usable or [WEBAUTHN]) if self.user.mfa_methods else [PASSWORD]

    @property
    def kind(self) -> str:
        """Return the method of this page."""
        return chosen_way(self.request.GET.get("method"), self.kinds)

    @property
    def back(self) -> str:
        """Return the page that asked, or "" for the application."""
        stated = self.request.GET.get("next", "")
        return stated if RETURNS.fullmatch(stated) else ""

    def _next(self) -> HttpResponse:
        if self.back.partition("/")[0] == "enroll":
            return self.to(self.back, own="1")
        return self.to(f"account/{self.back}" if self.back else "continue")

    def _send(self) -> HttpResponse:
        caller = Caller(principal=self.me, user_agent=self.agent)
        try:
            sent = request_sms_code(
                tenant_id=self.tenant.tenant_id, client_id=None, email=self.user.email, caller=caller
            )
        except ApiError as error:
            return self._page(forms.SmsForm(), error)
        self.steps = replace(self.steps, own_phone=sent.phone_display, notice="code_sent")
        return self.again()

    def _page(self, form: forms.PageForm, error: ApiError | None = None) -> HttpResponse:
        others, back = other_ways(self.kind, self.kinds), self.back
        context = {
            **self.application(),
            "kind": self.kind,
            "others": [(self.href("step-up", method=way, next=back), label) for way, label in others],
            "who": self.user.email,
            "action": self.href("step-up", method=self.kind, next=back),
            "phone": self.steps.own_phone,
            "can_send": self.kind == SMS,
            "elsewhere": self.usable != list(self.user.mfa_methods),
            "stage": STEP_UP,
        }
        return self.page("proof", _("Confirm that it is you"), context, form=form.focus(), error=error)

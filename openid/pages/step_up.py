"""Prove a session again: for an application that requires it, or for a change of the account."""

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.utils.functional import cached_property

from mfa.factors import WEBAUTHN
from mfa.sms.actions import request_sms_code
from mfa.stepup.actions import PASSWORD as PASSWORD_FIELD
from mfa.stepup.actions import proof_token_for, step_up, step_up_methods
from mfa.webauthn.relying_party import usable_methods
from openid import browser
from openid.authorization.flow import Step
from openid.pages import forms
from openid.pages.journey import SignedInPage
from openid.pages.journey_steps import Steps
from openid.pages.page import Context
from openid.pages.proofs import PASSWORD, PROOF_METHODS, ProofPage
from openid.pages.sign_in import STEP_UP
from userflow.accounts.models import EndUser
from userflow.sessions.browser import rotate_cookie
from userflow.signin.caller import Caller
from userflow.signin.step_up import PROOF_TOKEN_SECONDS

# Pages that lead here and back: those of the account, and those that add a factor.
RETURNS: Final = re.compile(
    r"security|password|email|delete|backup-codes|remove/[0-9a-f-]{36}|enroll(/(app|passkey|phone))?"
)


class StepUpPage(SignedInPage, ProofPage):
    """Ask for a factor, or for the password of a user who has no factor. Factors that are newer than the session do not
    count yet."""

    stage = STEP_UP

    def _answer(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Open only when this step is next: the application requires it, or a page of the account."""
        if self.session is not None and not self._is_next():
            return self.to("continue")
        return super()._answer(request, **kwargs)

    def _is_next(self) -> bool:
        return self.next_step() is Step.STEP_UP if self.handle else bool(self.back)

    def get(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Show the form of one method and links to the others. A user without a factor enrolls one for the application.

        Where nothing counts that the user has, only a new sign-in helps.
        """
        if not self.user.mfa_methods and self.pending is not None and not self.back:
            return self.to("enroll", own="1")
        if not self.methods:
            self.journey_steps = self.journey_steps.only_email(self.user.email).with_notice("confirm_by_sign_in")
            return self.to("signin", again="1")
        return super().get(request)

    def post(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Check the proof, or send a text message."""
        return super().post(request) if self.methods else self.get(request)

    def submit(self, form: forms.PageForm) -> HttpResponse:
        """Check the proof, raise the session and give it a new cookie."""
        sent = form.cleaned_data[PROOF_METHODS[self.kind].field]
        field = {WEBAUTHN: "response", PASSWORD: PASSWORD_FIELD}.get(self.kind, PROOF_METHODS[self.kind].field)
        raised = step_up(principal=self.me, proof={field: sent})
        if self.back and not self.password_first:
            proof_token = proof_token_for(principal=self.me, verified=raised.verified)
            self.journey_steps = replace(
                self.journey_steps, proof=proof_token, proof_until=time.time() + PROOF_TOKEN_SECONDS
            )
        self.journey_steps = replace(self.journey_steps, own_phone="")
        if self.password_first:
            # The factor counts now.
            response = self.to("step-up", next=self.back)
        elif self.back.partition("/")[0] == "enroll":
            response = self.to(self.back, own="1")
        else:
            response = self.to(f"account/{self.back}" if self.back else "continue")
        with self.entered():
            browser.set_session_cookie(response, self.tenant.tenant_id, rotate_cookie(self.own_session))
        return response

    @cached_property
    def usable(self) -> list[str]:
        with self.entered():
            return usable_methods(self.user.mfa_methods, EndUser.objects.filter(pk=self.user.pk))

    @cached_property
    def methods(self) -> list[str]:
        """Return the methods that can raise this session."""
        return step_up_methods(principal=self.me)

    @property
    def password_first(self) -> bool:
        """Return whether all factors of the user are newer than the session."""
        return PASSWORD in self.methods and bool(self.user.mfa_methods)

    @property
    def kinds(self) -> Sequence[str]:
        if PASSWORD in self.methods:
            return [PASSWORD]
        return [kind for kind in super().kinds if kind in self.methods] or [WEBAUTHN]

    def href_of(self, kind: str) -> str:
        return self.href("step-up", method=kind, next=self.back)

    @property
    def back(self) -> str:
        """Return the page that asked, or "" for the application."""
        next_page = self.request.GET.get("next", "")
        return next_page if RETURNS.fullmatch(next_page) else ""

    def send_code(self) -> Steps:
        caller = Caller(principal=self.me)
        sent = request_sms_code(tenant_id=self.tenant.tenant_id, client_id=None, email=self.user.email, caller=caller)
        return replace(self.journey_steps, own_phone=sent.phone_display)

    def context(self) -> Context:
        elsewhere = self.usable != list(self.user.mfa_methods) and not self.password_first
        return {
            **super().context(),
            "who": self.user.email,
            "phone": self.journey_steps.own_phone,
            "elsewhere": elsewhere,
            "password_first": self.password_first,
        }

"""Pages on the way to a session: what they share of the application's request, the browser's session and the steps."""

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar, Final
from urllib.parse import urlsplit

from django.http import HttpRequest, HttpResponse
from django.utils.functional import cached_property
from django.utils.timezone import now
from django.utils.translation import gettext as _

from identity_platform.api.errors import ApiError
from identity_platform.audit.origin import set_actor
from openid import browser
from openid.authorization.flow import Step, complete, next_step
from openid.authorization.requests import PendingRequest, pending_request
from openid.authorization.responses import FORM_POST, AuthorizationResponse
from openid.device.codes import keep_approved_codes
from openid.errors import RequestExpired, StepRequired
from openid.models import AuthorizationCode
from openid.pages import errors
from openid.pages.journey_steps import Steps, latest_steps, new_journey
from openid.pages.page import Context, Page
from tenants.entering.context import tenant_atomic
from userflow.accounts.models import Account, EndUser, TenantClient
from userflow.accounts.principals import Principal
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.credentials import tickets
from userflow.errors import InsufficientAuthentication, NotSignedInByTicket
from userflow.sessions.browser import browser_principal, find_browser_session, find_held_session
from userflow.sessions.ending import end_sessions
from userflow.signin.delivery import BrowserCookie
from userflow.signin.pipeline import SignedIn
from userflow.signin.remembered_browsers import Cookie

NO_STEPS: Final = Steps()
_PAGES: Final = {
    Step.SIGN_IN: "signin",
    Step.STEP_UP: "step-up",
    Step.SELECT_ACCOUNT: "select-account",
    Step.CONSENT: "consent",
}
_HOST: Final = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?")


class JourneyPage(Page):
    """A page that knows the application's request and the browser's session."""

    # The field of the steps without which the page is of no use. Where its address names no journey, as in the link of a
    # mail, it goes on with the browser's latest one that has this field.
    needed: ClassVar[str] = ""
    # Addresses of the application that a form of this page posts the response to.
    posted_to: Sequence[str] = ()

    @cached_property
    def handle(self) -> str:
        """Return the handle of the application's request, or "" without one."""
        request_handle = self.handle_in_address
        if request_handle or not self.needed or not self.journey_steps.handle:
            return request_handle
        try:
            self._find(self.journey_steps.handle)
        except ApiError:
            # Also of a tenant that is suspended or busy: the error page must not fail for the reason that it states.
            return ""
        return self.journey_steps.handle

    @property
    def journey_in_address(self) -> str:
        """Return the journey in the address, or the latest one that the page can go on with."""
        journey_handle = super().journey_in_address
        return journey_handle or (latest_steps(self.request, self.tenant, self.needed).journey if self.needed else "")

    @cached_property
    def pending(self) -> PendingRequest | None:
        """Return the application's request. Raises RequestExpired, also for the request of another browser."""
        if not self.handle:
            return None
        try:
            return self._find(self.handle)
        except RequestExpired as error:
            if self.is_known_browser:
                raise
            raise errors.RequestOfOtherBrowser from error

    @property
    def ui_locales(self) -> tuple[str, ...]:
        try:
            return self.pending.parameters.ui_locales if self.pending is not None else ()
        except ApiError:
            return ()

    def _find(self, handle: str) -> PendingRequest:
        with self.entered():
            return pending_request(handle, self.browser)

    def _answer(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        # Known only with the session; a page that fails without one says so itself.
        with suppress(ApiError):
            if self.session is not None:
                self.activate_language(self.session.user.language)
        return super()._answer(request, **kwargs)

    @cached_property
    def session(self) -> EndUserSession | None:
        """Return the active session of the browser."""
        if self.session_cookie is None:
            return None
        with self.entered():
            return find_browser_session(self.session_cookie, notes_use=self.request.method != "HEAD")

    def held_session(self) -> EndUserSession | None:
        """Return the session that the browser's cookie names, also if it is not enough to be signed in, but has not ended.

        Call it inside the tenant.
        """
        return find_held_session(self.session_cookie) if self.session_cookie is not None else None

    @property
    def principal(self) -> Principal | None:
        """Return the user of the browser's session, for actions of users on themselves."""
        if self.session is None:
            return None
        with self.entered():
            return browser_principal(self.session)

    @property
    def agent(self) -> str:
        """Return the user agent, for the list of sessions."""
        return str(self.request.META.get("HTTP_USER_AGENT", ""))

    @property
    def delivery(self) -> BrowserCookie:
        """What a sign-in at this page hands out."""
        return BrowserCookie(self.agent)

    @cached_property
    def registration_client(self) -> TenantClient | None:
        """Return the client that a new user registers with, None if users cannot register themselves.

        That is the application that the user comes from, else the default client, but not in place of one that is closed.
        """
        if not self.tenant.effective["self_registration"]:
            return None
        if self.pending is not None:
            return self.pending.client if self.pending.client.self_registration else None
        with self.entered():
            return TenantClient.objects.filter(is_default=True, active=True, self_registration=True).first()

    def context(self) -> Context:
        return self.application()

    def links_on(self) -> list[tuple[str, str]]:
        client, links = self.application_of_error, []
        if client is not None and client.client_uri:
            links.append((client.client_uri, _("Back to %(application)s") % {"application": client.name}))
        with suppress(ApiError):
            if self.session is not None:
                return [*links, (f"{self.root}/account", _("Your account"))]
        return [*links, (f"{self.root}/signin", _("Sign in"))]

    @property
    def application_of_error(self) -> TenantClient | None:
        """Return the application that an error page leads back to, if it is known."""
        with suppress(ApiError):
            return self.pending.client if self.pending is not None else None
        return None

    def to_with(self, notice: str, name: str) -> HttpResponse:
        """Redirect to another page, which shows a message."""
        self.journey_steps = self.journey_steps.with_notice(notice)
        return self.to(name)

    def tell_at_account(self, notice: str) -> None:
        """Let the next page of the account show a message: these pages have no journey."""
        self.journey, self.journey_steps = "", NO_STEPS.with_notice(notice)

    def application(self) -> Context:
        """Return what pages show of the application."""
        client = self.pending.client if self.pending is not None else None
        return {"application": client.name if client else "", "client": client}

    @property
    def expected_email(self) -> str:
        """Return the address that is probably the user's: the application's hint, what was typed, who is signed in."""
        hint = self.pending.parameters.login_hint if self.pending is not None else ""
        signed_in = self.session.user.email if self.session is not None else ""
        return hint or self.journey_steps.email or signed_in

    def remember_request(self) -> None:
        """Keep the request for pages that the user opens from a mail."""
        if self.pending is not None and self.journey_steps.handle != self.handle:
            self.journey_steps = Steps(
                email=self.journey_steps.email, notice=self.journey_steps.notice, handle=self.handle
            )

    def go_on_with(self, email: str) -> None:
        """Go on with the browser's latest journey of this user, else with a new one, unless the page's address names one.

        The latest of all may be that of another tab, in which another user signs in.
        """
        if super().journey_in_address:
            self.journey_steps = self.journey_steps.only_email(email)
            return
        journey_steps = latest_steps(self.request, self.tenant, needed="journey", email=email)
        self.continue_journey(journey_steps.journey or new_journey(), journey_steps)
        self.journey_steps = journey_steps.only_email(email)
        for name in ("handle", "pending"):
            self.__dict__.pop(name, None)

    def next_step(self) -> Step:
        """Return what the application's request still needs; without a request, whether the user is signed in."""
        if self.pending is None:
            return Step.DONE if self.session is not None else Step.SIGN_IN
        with self.entered():
            return next_step(self.pending, self.session)

    def require_proof(self) -> dict[str, object]:
        """Return the proof of the last step-up of this session while it can be used. Raises InsufficientAuthentication.

        A used one is not tried: it would count as a wrong secret.
        """
        proof_token, session = self.journey_steps.proof, self.session
        if proof_token and session is not None and self.journey_steps.proof_until >= time.time():
            with suppress(NotSignedInByTicket), self.entered():
                if tickets.find_ticket(END_USERS, proof_token, tickets.PROOF).session_id == session.pk:
                    return {"proof_token": proof_token}
        raise InsufficientAuthentication

    def enter(self, signed_in: SignedIn[Account], response: HttpResponse | None = None) -> HttpResponse:
        """Begin the session that a sign-in has opened, in place of the browser's earlier one, and go on.

        Where nothing is left to do, the application gets its response at once.
        """
        assert signed_in.cookie is not None  # delivered to a browser
        session, user = signed_in.session, signed_in.user
        # Only a browser gets a cookie.
        assert isinstance(session, EndUserSession)
        assert isinstance(user, EndUser)
        session.user = user
        with self.entered():
            self._replace_earlier(session)
        self.__dict__["session"] = session
        if response is None:
            try:
                response = self.go_on()
            except ApiError:
                # The user is signed in all the same. The next page says what is wrong with the request.
                response = self.to("continue")
        browser.set_session_cookie(response, self.tenant.tenant_id, signed_in.cookie)
        self.journey_steps = NO_STEPS
        return response

    def go_on(self) -> HttpResponse:
        """Return the response to the application's request, or a redirect to the page of its next step.

        Without a request the user goes to the account page. Raises RequestExpired.
        """
        if self.pending is None:
            return self.to("account" if self.session is not None else "signin")
        step = self.next_step()
        if step is Step.STEP_UP and self.session is not None and not self.session.user.mfa_methods:
            return self.to("enroll", own="1")
        if step is not Step.DONE:
            return self.to(_PAGES[step])
        try:
            with self.entered():
                response = complete(self.pending, self.session)
        except StepRequired as needed:
            return self.to(_PAGES[Step(needed.step)])
        return self.respond(response, self.pending.client)

    @property
    def device_cookie(self) -> str | None:
        """Return the cookie of a browser that may skip the second step."""
        return browser.read_cookie(self.request, browser.DEVICE, self.tenant.tenant_id)

    def keep_device(self, response: HttpResponse, device: Cookie) -> HttpResponse:
        """Send the cookie of a browser that skips the second step."""
        seconds = max(1, round((device.expires_at - now()).total_seconds()))
        browser.set_cookie(response, browser.DEVICE, self.tenant.tenant_id, device.value, max_age=seconds)
        return response

    def _replace_earlier(self, session: EndUserSession) -> None:
        """End the earlier session of the browser.

        While it was active, the applications of the same user stay signed in, in the new session, and what the user has let
        in keeps waiting for its tokens.
        """
        earlier = self.held_session()
        if earlier is None:
            return
        with tenant_atomic():
            if self.session is not None and earlier.user_id == session.user_id:
                EndUserSession._default_manager.filter(parent_id=earlier.pk, ended_at=None).update(parent=session)
                AuthorizationCode.objects.filter(session_id=earlier.pk, used_at=None).update(session=session)
                keep_approved_codes(earlier, session)
            end_sessions(END_USERS, user_id=earlier.user_id, session_id=earlier.pk, reason="signed_in_again")

    def signed_out(self, notice: str) -> HttpResponse:
        """Go to the sign-in page after the browser's session has ended."""
        self.journey_steps = replace(self.journey_steps.only_email(""), notice=notice)
        return self.leave_session(self.to("signin"))

    def leave_session(self, response: HttpResponse) -> HttpResponse:
        """Delete the cookie of a session that has ended."""
        if self.session_cookie is not None:
            browser.delete_cookie(response, browser.SESSION, self.tenant.tenant_id)
        return response

    def to_application(self, url: str) -> HttpResponse:
        """Redirect to an address that the request's checks have found right; applications may have schemes of their own."""
        return HttpResponse(status=303, headers={"Location": url})

    def respond(self, response: AuthorizationResponse, client: TenantClient | None) -> HttpResponse:
        """Send the browser back to the application with the response to its request: by a redirect, or by a form.

        The form is sent by a script, or by its button (OAuth 2.0 Form Post Response Mode). `client` is None if it has not
        been read.
        """
        if response.mode != FORM_POST:
            return self.to_application(response.url)
        self.posted_to = addresses_of(client, response.address)
        context = {"action": response.address, "parameters": response.parameters}
        return self.page("form_post", _("Back to the application"), context)

    @property
    def form_targets(self) -> tuple[str, ...]:
        pending = self.__dict__.get("pending")
        known = self.posted_to
        if isinstance(pending, PendingRequest):
            known = [*known, *addresses_of(pending.client, pending.parameters.redirect_uri)]
        return tuple(dict.fromkeys(source for source in map(source_of, known) if source))


def addresses_of(client: TenantClient | None, redirect_uri: str) -> list[str]:
    """Return where a form may lead: the application may send the browser on to another address of its own."""
    if client is None:
        return [redirect_uri]
    return [redirect_uri, *client.redirect_uris, *client.allowed_origins, client.client_uri]


def source_of(uri: str) -> str:
    """Return the origin of an address as a source of a content security policy, or the scheme of an app's own."""
    split = urlsplit(uri)
    if split.scheme not in ("https", "http"):
        return f"{split.scheme}:" if split.scheme else ""
    # The grammar of sources has no IPv6 addresses (CSP Level 3 section 2.3.1), and native apps listen on any port.
    if split.hostname in ("127.0.0.1", "::1", "localhost"):
        return "http:" if split.hostname == "::1" else f"http://{split.hostname}:*"
    # Anything else could end the directive in the header.
    return f"{split.scheme}://{split.netloc}" if _HOST.fullmatch(split.netloc) else ""


class SignedInPage(JourneyPage):
    """A page for users who are signed in; others sign in first."""

    own_session: EndUserSession
    me: Principal

    @property
    def user(self) -> EndUser:
        return self.own_session.user

    def _answer(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        if self.session is None or self.principal is None:
            return self.to("signin")
        self.own_session, self.me = self.session, self.principal
        set_actor(self.me.kind, str(self.me.id))
        return super()._answer(request, **kwargs)

"""The journey of a hosted page: its handle in addresses and forms, its steps in a cookie, and where it goes on.

The forms of a page carry a token, so that only the browser that it was rendered for can send them.
"""

import secrets
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.functional import cached_property
from django.views import View

from identity_platform.crypto import constant_time_equal
from openid import browser
from openid.pages import errors
from openid.pages.journey_steps import Steps, is_journey, new_journey, read_steps, write_steps
from tenants.entering.context import in_tenant
from tenants.entering.lookup import TenantContext
from tenants.states import Purpose

FORM_TOKEN: Final = "form_token"
# The parameter of an address that names the journey where no application's request does, and the pages that have one.
JOURNEY: Final = "j"
JOURNEY_PAGES: Final = frozenset({"signin", "enroll", "verify-email", "register", "forgot", "passkey-options"})


class JourneyState(View):
    """The part of a page that knows its tenant, its browser and its journey."""

    tenant: TenantContext
    # The value of the cookie that stands for the browser; new at its first page.
    browser: str
    # What this response writes back, if it has changed; none before the tenant is known.
    journey_steps = Steps()
    # The handle of the journey that the steps belong to; "" for pages of the account, which act for the session's user.
    journey = ""
    # None without a session.
    session_cookie: str | None

    def entered(self) -> AbstractContextManager[TenantContext]:
        """Enter the tenant for statements about the sign-in or the account of its users.

        Not once for the whole request: while a password is hashed, a message is sent or the page is rendered, the connection
        serves others. The tenant itself is read once. Raises UnknownTenant, TenantSuspended, TenantBusy, ReadOnlyMode.
        """
        return in_tenant(self.tenant.tenant_id, Purpose.SIGN_IN)

    def _read_steps(self, request: HttpRequest) -> None:
        journey = self.journey_in_address
        self.continue_journey(journey, read_steps(request, self.tenant, journey))

    def continue_journey(self, journey: str, journey_steps: Steps) -> None:
        """Act for this journey, whose stored steps are given."""
        self.journey, self.journey_steps = journey, journey_steps
        self._read = (journey, journey_steps)

    def _write_steps(self, request: HttpRequest, response: HttpResponse) -> None:
        journey, journey_steps = self._read
        if self.journey_steps != Steps():
            self.journey_steps = replace(self.journey_steps, journey=self.journey)
        if (self.journey, self.journey_steps) == (journey, journey_steps):
            return
        write_steps(request, response, self.tenant, self.journey, self.journey_steps)
        if self.journey != journey:
            # They have gone on in the new journey.
            write_steps(request, response, self.tenant, journey, Steps())

    @property
    def handle_in_address(self) -> str:
        """Return the handle of the application's request in the address, or ""."""
        return self.request.GET.get("request", "")

    @property
    def journey_in_address(self) -> str:
        """Return the handle of the journey in the address, or ""."""
        other = self.request.GET.get(JOURNEY, "")
        return self.handle_in_address or (other if is_journey(other) else "")

    def _check_form(self, request: HttpRequest) -> None:
        """Raise FormExpired unless the form was rendered for this browser, session (CSRF) and account; its class says why."""
        # Sent by browsers of the last years; a page of another site that knows no token is rejected without it too.
        site = request.headers.get("Sec-Fetch-Site", "same-origin")
        of_browser, of_session, of_account = read_form_token(request.POST.get(FORM_TOKEN, ""))
        if site not in ("same-origin", "none") or not constant_time_equal(of_browser, self._browser_token()):
            raise errors.FormExpired
        if not constant_time_equal(of_session, self._session_token()):
            raise errors.SignedOutElsewhere if self.session_cookie is None else errors.SignedInElsewhere
        if self.account and not constant_time_equal(of_account, self._account_token()):
            raise errors.OtherAccount

    @property
    def is_known_browser(self) -> bool:
        """Return whether the browser has sent the cookie that stands for it, so it accepts cookies."""
        return browser.read_cookie(self.request, browser.BROWSER, self.tenant.tenant_id) is not None

    def _form_token(self) -> str:
        """Return what a form sends: the tokens of session, browser and account, and a value of this form alone."""
        account = self._account_token() if self.account else ""
        return f"{self._session_token()}.{secrets.token_urlsafe(9)}.{self._browser_token()}.{account}"

    def _browser_token(self) -> str:
        # Only tells a form of another session from that of another browser. No session's cookie has this value.
        return browser.form_token(self.tenant.tenant_id, self.browser, "browser alone")

    def _session_token(self) -> str:
        return browser.form_token(self.tenant.tenant_id, self.browser, self.session_cookie)

    def _account_token(self) -> str:
        return browser.form_token(self.tenant.tenant_id, self.browser, f"{self.journey} {self.account}")

    @property
    def account(self) -> str:
        """Return whom the page's form is about, where that is not the user of the session and no field names it."""
        return ""

    @property
    def root(self) -> str:
        """Return the path of the tenant's pages."""
        return self.tenant.root_path

    @cached_property
    def handle(self) -> str:
        """Return the handle of the application's request, or "" without one."""
        return self.handle_in_address

    def journey_parameters(self, name: str = "signin") -> dict[str, str]:
        """Return the parameters that keep the request and the journey on the page of that name."""
        if self.handle:
            return {"request": self.handle}
        return {JOURNEY: self.journey} if self.journey and name.partition("/")[0] in JOURNEY_PAGES else {}

    @property
    def query(self) -> str:
        """Return the query that keeps the application's request and the journey on the next page."""
        query = urlencode(self.journey_parameters())
        return f"?{query}" if query else ""

    def href(self, name: str, **more: str) -> str:
        """Return the address of another page of the tenant, with the application's request and the journey."""
        query = urlencode({name: value for name, value in {**more, **self.journey_parameters(name)}.items() if value})
        return f"{self.root}/{name}" + (f"?{query}" if query else "")

    def to(self, name: str, **more: str) -> HttpResponseRedirect:
        """Redirect to another page of the tenant, with the application's request and the journey."""
        # A message alone needs none: the next page shows it and forgets it.
        has_steps = self.journey_steps != Steps(notice=self.journey_steps.notice)
        if has_steps and name.partition("/")[0] in JOURNEY_PAGES and "own" not in more:
            self.begin_journey()
        response = HttpResponseRedirect(self.href(name, **more))
        response.status_code = 303
        return response

    def begin_journey(self) -> None:
        """Give the steps a journey of their own, unless they have one."""
        self.journey = self.journey or new_journey()

    def again(self) -> HttpResponse:
        """Redirect to this page, so that a reload sends nothing."""
        return HttpResponse(status=303, headers={"Location": self.request.get_full_path()})


def read_form_token(sent: str) -> tuple[str, str, str]:
    """Return the tokens of browser, session and account of what a form has sent; "" for those that are missing."""
    session, _unique, browser_token, account = [*sent.split(".", 3), "", "", ""][:4]
    return browser_token, session, account

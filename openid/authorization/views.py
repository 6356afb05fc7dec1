"""The authorization endpoint (RFC 6749 section 3.1, OpenID Connect Core section 3.1.2)."""

from contextlib import suppress
from urllib.parse import urlencode

from django.db import Error as DatabaseFailure
from django.http import HttpRequest, HttpResponse
from django.utils.functional import cached_property

from identity_platform.api.errors import ApiError, Unavailable
from identity_platform.api.handlers import as_api_error
from identity_platform.audit.origin import set_tenant
from openid.authorization import flow
from openid.authorization.parameters import CREATE, Sent
from openid.authorization.requests import (
    PendingRequest,
    begin_request,
    keep_pushed,
    read_request,
    response_to,
    returned,
)
from openid.clients import find_client, find_client_with_tenant
from openid.errors import ACCESS_DENIED, TEMPORARILY_UNAVAILABLE, AuthorizationRejected, RequestRejected
from openid.pages.journey_steps import Steps
from openid.pages.sign_in import SignInPage
from openid.tenant_of_request import is_address_of
from tenants.entering import lookup
from tenants.entering.lookup import TenantContext
from tenants.errors import TenantSuspended
from tenants.states import Purpose
from userflow.accounts.models import TenantClient
from userflow.clients.redirects import matches
from userflow.credentials import attempts

FORM = "application/x-www-form-urlencoded"


class Authorize(SignInPage):
    """Send the browser back to the application, or show the page where its user signs in."""

    # `request` is a parameter of the protocol here, not the handle of a stored request.
    handle_in_address = journey_in_address = ""

    from_applications = True
    # A request begins or is finished, a code is issued.
    changes_by_get = True
    # The client that the query names, if it has been read with its tenant.
    client: TenantClient | None = None

    def find_tenant(self, request: HttpRequest) -> TenantContext:
        """Return the tenant of the page, read with the client that the query names: one statement for most requests."""
        try:
            client_and_tenant = find_client_with_tenant(self.sent.get("client_id")) if request.method == "GET" else None
        except RequestRejected:
            client_and_tenant = None
        if client_and_tenant is None or not is_address_of(request, client_and_tenant[1]):
            return super().find_tenant(request)
        self.client, tenant = client_and_tenant
        set_tenant(tenant.tenant_id, self.client.pk)
        return lookup.remember(tenant)

    @cached_property
    def sent(self) -> Sent:
        """The parameters, from the query or the body. Raises RequestRejected."""
        if self.request.method == "POST":
            return Sent.from_form(self.request.body)
        # WSGI passes bytes as Latin-1 characters (PEP 3333).
        return Sent.from_form(self.request.META.get("QUERY_STRING", "").encode("latin-1", "replace"))

    def get(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Read the request from the query. Raises AuthorizationRejected."""
        return self._begin()

    def post(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Read the request from a form (OpenID Connect Core section 3.1.2.1). Raises AuthorizationRejected."""
        if request.content_type != FORM:
            raise AuthorizationRejected(f"Send the parameters as {FORM}.")
        return self._begin()

    def _check_form(self, request: HttpRequest) -> None:
        """Check nothing: the form is one of the application, and a request changes nothing by itself."""

    @property
    def application_of_error(self) -> TenantClient | None:
        with suppress(RequestRejected):
            return self.client or find_client(self.tenant, self.sent.get("client_id"))
        return None

    def _begin(self) -> HttpResponse:
        try:
            return self._next()
        except RequestRejected as problem:
            return self._rejected(problem)
        except (ApiError, DatabaseFailure) as raised:
            error = as_api_error(raised)
            client = self.client or find_client(self.tenant, self.sent.get("client_id"))
            redirect_uri = self._redirect_uri(client) if isinstance(error, TenantSuspended | Unavailable) else None
            if client is None or redirect_uri is None:
                raise
            name = ACCESS_DENIED if isinstance(error, TenantSuspended) else TEMPORARILY_UNAVAILABLE
            return self._rejected(returned(RequestRejected(name, error.text), redirect_uri, self.sent, client))

    def _next(self) -> HttpResponse:
        self.tenant = self.tenant.check(Purpose.SIGN_IN)
        pending = read_request(self.tenant, self.sent, client=self.client)
        if self.lacks_cookies:
            return redirect_to(self._as_link(pending))
        with self.entered():
            response = flow.answer_without_pages(pending, self.session)
            if response is None:
                attempts.limit_address("authorization")
                return self._first_page(pending, begin_request(pending, self.browser))
        return self.respond(response, pending.client)

    def _first_page(self, pending: PendingRequest, handle: str) -> HttpResponse:
        """Return the page that a request begins with: with `prompt=create` the registration, if it is open."""
        self.pending, self.handle = pending, handle
        self.continue_journey(handle, Steps())
        self.activate_language(self.session.user.language if self.session is not None else "")
        if CREATE in pending.parameters.prompts and self.registration_client is not None:
            return self.to("register")
        return self.ask() if self.next_step() is flow.Step.SIGN_IN else self.go_on()

    @property
    def address(self) -> str:
        return self.href("signin") if self.handle else super().address

    def _as_link(self, pending: PendingRequest) -> str:
        """Return this endpoint with the request: with a link browsers send their cookies from another site too."""
        attempts.limit_address("authorization")
        pushed = self.sent.get("request_uri") if pending.pushed_digest is not None else None
        fields = {"client_id": str(pending.client.pk), "request_uri": pushed or keep_pushed(pending)}
        return f"{self.root}/authorize?{urlencode(fields)}"

    def _redirect_uri(self, client: TenantClient | None) -> str | None:
        """Return the redirect URI of the request if it is known to be right without the tenant's database."""
        redirect_uri = self.sent.get("redirect_uri")
        return (
            redirect_uri
            if redirect_uri and client is not None and matches(client.redirect_uris, redirect_uri)
            else None
        )

    def _rejected(self, problem: RequestRejected) -> HttpResponse:
        """Return the error to the application, or raise AuthorizationRejected while its address is not known to be right."""
        if problem.redirect_uri is None:
            raise AuthorizationRejected(problem.description)
        client = self.client or find_client(self.tenant, self.sent.get("client_id"))
        if client is None:
            # It was deleted meanwhile.
            raise AuthorizationRejected(problem.description)
        response = response_to(
            self.tenant,
            client,
            problem.redirect_uri,
            state=problem.state,
            response_mode=problem.response_mode,
            error=problem.error,
            error_description=problem.description,
        )
        return self.respond(response, client)


def redirect_to(address: str) -> HttpResponse:
    """Return a redirect that is followed with GET (RFC 9700 section 4.12).

    Django's own class rejects the schemes of native applications; the address is a registered one or the platform's.
    """
    return HttpResponse(status=303, headers={"Location": address})

"""The base of the hosted pages: tenant, language, cookies, headers and errors."""

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from django import forms
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import translation
from django.utils.functional import cached_property
from django.utils.html import strip_tags
from django.utils.http import escape_leading_slashes
from django.utils.translation import gettext, gettext_lazy

from identity_platform.api.errors import ApiError, MethodNotAllowed
from identity_platform.api.handlers import as_api_error, note_rejection
from identity_platform.api.repeated_forms import form_key, respond_once
from identity_platform.audit.origin import set_language
from identity_platform.crypto import new_token
from openid import browser
from openid.errors import TenantMoved
from openid.pages import errors
from openid.pages.forms import PageForm
from openid.pages.journey_state import FORM_TOKEN, JourneyState
from openid.pages.languages import choose_language, chosen_language, is_choice_of_language, language_links
from openid.tenant_of_request import tenant_of_request
from tenants.addresses.hosts import tenant_at_host
from tenants.entering.lookup import TenantContext
from tenants.middleware.mode_middleware import check_open
from userflow.branding.brand import brand_of
from userflow.branding.models import Branding
from userflow.branding.reading import find_branding
from userflow.branding.texts import LANGUAGES, accepted_codes, known_language
from userflow.errors import TooManyFromAddress

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

Context = Mapping[str, object]
# Messages that the next page shows once.
NOTICES: Final = {
    "password_changed": gettext_lazy("Your new password is saved. Sign in with it."),
    "saved": gettext_lazy("Your changes are saved."),
    "email_asked": gettext_lazy("We have sent a mail to the new address. Open the link in it."),
    "email_kept": gettext_lazy("Your e-mail address stays as it is. A change that was not verified yet is cancelled."),
    "password_saved": gettext_lazy("Your new password is saved. All your other devices are signed out."),
    "factor_removed": gettext_lazy("The second factor is removed."),
    "passkey_removed": gettext_lazy("The passkey is removed."),
    "device_signed_out": gettext_lazy("Signed out there."),
    "device_forgotten": gettext_lazy("That browser asks for your second step again."),
    "disconnected": gettext_lazy("The application no longer has access to your account."),
    "account_deleted": gettext_lazy("Your account is deleted."),
    "signed_out": gettext_lazy("You are signed out."),
    "expired": gettext_lazy("The sign-in took too long or had too many wrong codes. Sign in again."),
    "email_verified": gettext_lazy("Your e-mail address is verified."),
    "code_sent": gettext_lazy("We have sent you a new code."),
    "mail_sent": gettext_lazy("If this address needs verification, a new mail is on its way."),
    "factor_added": gettext_lazy("Your new second factor is ready."),
    "passkey_added": gettext_lazy("Your passkey is ready."),
    "account_ready": gettext_lazy("Your account is ready."),
    "confirm_by_sign_in": gettext_lazy("Sign in again to confirm that it is you."),
}


def language_of(request: HttpRequest, *, requested: Sequence[str] = (), user_language: str = "") -> str:
    """Return the language of the first preference for which there is a catalogue (OpenID Connect Core section 3.1.2.1).

    What was `requested` for this page, else the `user_language` (or ""), else the browser's, else English.
    """
    accepted = accepted_codes(request.META.get("HTTP_ACCEPT_LANGUAGE", ""))
    return known_language((*requested, user_language, *accepted)) or LANGUAGES[0]


class Page(JourneyState):
    """A page of a tenant. Subclasses define `get` and `post`, and raise ApiErrors for the error page."""

    http_method_names = ["get", "head", "post"]
    # Whether scripts fetch it: then errors are JSON.
    is_data: ClassVar[bool] = False
    # Whether applications send forms here. From their own sites these come without the browser's cookies, which are Lax.
    from_applications: ClassVar[bool] = False
    # Whether GET changes something: then HEAD, which is only a look at an address, is rejected.
    changes_by_get: ClassVar[bool] = False
    # Read by `tenants.middleware.mode_middleware`.
    shows_modes: ClassVar[bool] = True

    def dispatch(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        """Respond with the page, or with an error page of the same status."""
        self.nonce = secrets.token_urlsafe(16)
        # Browsers send forms in the page's encoding; a sender must not choose one that Python lacks, or that is no text.
        # None stands for it too, and setting it makes Django parse the query.
        if request.encoding is not None:
            request.encoding = "utf-8"
        with translation.override(language_of(request)):
            try:
                check_open(request)
                self.tenant = self.find_tenant(request)
                del kwargs["slug"]
                response = self._respond(request, **kwargs)
            except TenantMoved as moved:
                response = self._moved(moved)
            except Exception as problem:
                response = self._error_page(as_api_error(problem))
        if "Content-Security-Policy" not in response.headers:
            self._protect(response)
        return response

    def find_tenant(self, request: HttpRequest) -> TenantContext:
        """Return the tenant of the page. Raises UnknownTenant, TenantMoved."""
        return tenant_of_request(request)

    def _moved(self, moved: TenantMoved) -> HttpResponse:
        """Redirect to the same page at the tenant's address; a form is not sent again elsewhere."""
        if self.is_data or self.request.method not in ("GET", "HEAD"):
            return self._error_page(moved)
        # Without `/t/{slug}`, which a domain does not have.
        rest = self.request.get_full_path().split("/", 1 if tenant_at_host(self.request) else 3)[-1]
        return HttpResponse(status=302, headers={"Location": f"{moved.root}/{rest}"})

    def _respond(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        if request.method == "GET" and is_choice_of_language(request):
            return choose_language(request, self.tenant)
        known_browser = browser.read_cookie(request, browser.BROWSER, self.tenant.tenant_id)
        self.browser = known_browser or new_token()
        first = partial(self._respond_first, request, is_known=known_browser is not None, **kwargs)
        if known_browser is None or request.method != "POST" or self.is_data:
            return first()
        key = form_key(request, self.tenant.tenant_id.hex, known_browser)
        # Without a value of its own, the same entries in another form could not be told apart. Applications' forms have none.
        return respond_once(key, first) if "." in request.POST.get(FORM_TOKEN, "") else first()

    def _respond_first(self, request: HttpRequest, *, is_known: bool, **kwargs: object) -> HttpResponse:
        """Respond with all headers and cookies. A known browser has its cookie."""
        self.session_cookie = browser.read_cookie(request, browser.SESSION, self.tenant.tenant_id)
        is_foreign_form = self.from_applications and request.method == "POST"
        self.lacks_cookies = is_foreign_form and not is_known and self.session_cookie is None
        self._read_steps(request)
        self.activate_language()
        if request.method == "POST":
            self._check_form(request)
        response = self._answer(request, **kwargs)
        # They may only be withheld: another site must not replace them. And a look at an address shows no notice.
        if not self.lacks_cookies and request.method != "HEAD":
            if not is_known:
                browser.set_cookie(response, browser.BROWSER, self.tenant.tenant_id, self.browser)
            self._write_steps(request, response)
        self._protect(response)
        return response

    def _answer(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        # HEAD is answered as GET; Django sends no body.
        methods = {"GET": "get", "HEAD": "get", "POST": "post"}
        allowed = {name: handler for name, method in methods.items() if (handler := getattr(self, method, None))}
        if self.changes_by_get:
            del allowed["HEAD"]
        handler = allowed.get(request.method or "")
        if handler is None:
            raise MethodNotAllowed(headers={"Allow": ", ".join(allowed)})
        try:
            response: HttpResponse = handler(request, **kwargs)
        except ApiError as error:
            # Here, so that the cookies are written also with an error page.
            response = self._error_page(error)
        return response

    @property
    def address(self) -> str:
        """Return the address of the page, with which it is shown again in another language."""
        return self.request.get_full_path()

    @property
    def ui_locales(self) -> tuple[str, ...]:
        """Return the languages that the application's request asks for, preferred first."""
        return ()

    def activate_language(self, user_language: str = "") -> None:
        """Render in the language chosen on a page, else what the application asks for, the `user_language`, the browser's.

        `dispatch` restores the language that was active before.
        """
        requested = (chosen_language(self.request, self.tenant), *self.ui_locales)
        language = language_of(self.request, requested=requested, user_language=user_language)
        translation.activate(language)
        set_language(language, asked_for=bool(known_language(requested)))

    def context(self) -> Context:
        """Return what the templates of this page show."""
        return {}

    def page(
        self,
        template: str,
        title: "StrOrPromise",
        context: Context | None = None,
        *,
        form: forms.Form | None = None,
        error: ApiError | None = None,
        status: int = 200,
    ) -> HttpResponse:
        """Return a page. Its status is that of the error, or 400 for a form with errors.

        An error that belongs to no form that was sent is shown above everything. A caller over a limit gets the error page.
        """
        if isinstance(error, TooManyFromAddress):
            return self._error_page(error)
        problem = errors.in_words(error) if error is not None and not (form is not None and form.is_bound) else ""
        if error is not None:
            note_rejection(self.request, error)
            status = errors.status_of(error)
        elif form is not None and form.is_bound and form.errors:
            status = 400
        notice = ""
        if self.journey_steps.notice:
            notice, self.journey_steps = (
                str(NOTICES.get(self.journey_steps.notice, "")),
                self.journey_steps.with_notice(""),
            )
        values = {
            **self._frame(str(title)),
            "notice": notice,
            "problem": problem,
            "form_token": self._form_token(),
            "steps": self.journey_steps,
            "form": form,
            **(context or {}),
        }
        response = render(self.request, f"openid/{template}.html", values, status=status)
        if error is not None and "Retry-After" in error.headers:
            response.headers["Retry-After"] = error.headers["Retry-After"]
        return response

    def _frame(self, title: str) -> dict[str, object]:
        tenant, language = getattr(self, "tenant", None), translation.get_language()
        return {
            "title": title,
            "nonce": self.nonce,
            "language": language,
            "root": self.root if tenant else "",
            "query": self.query,
            "brand": brand_of(tenant, self.branding, language) if tenant else None,
            "languages": language_links(self.address) if tenant else [],
        }

    @cached_property
    def branding(self) -> Branding:
        """Return the tenant's branding, or an empty one while its database cannot be used."""
        try:
            with self.entered():
                return find_branding()
        except (ApiError, DatabaseError):
            # The page says what is wrong, if anything is, and an error page must not fail for the reason that it states.
            return Branding()

    def _error_page(self, error: ApiError) -> HttpResponse:
        note_rejection(self.request, error)
        status = errors.status_of(error)
        if status >= 500 or isinstance(error, TooManyFromAddress):
            # The database may be what is down, and a caller over a limit must cost the tenant nothing more.
            self.__dict__.setdefault("branding", Branding())
        if self.is_data:
            # Scripts show it as text.
            message = strip_tags(errors.in_words(error))
            response: HttpResponse = JsonResponse({"message": message}, status=status)
        else:
            text = errors.in_words(error)
            values = {
                **self._frame(errors.title_of(error)),
                "text": text,
                "details": error.text if error.text != text and isinstance(error, errors.OF_APPLICATIONS) else "",
                "reference": getattr(self.request, "request_id", ""),
                "links": self._links_on(error, status),
            }
            response = render(self.request, "openid/error.html", values, status=status)
        for name in ("Allow", "Retry-After"):
            if name in error.headers:
                response.headers[name] = error.headers[name]
        return response

    def _links_on(self, error: ApiError, status: int) -> list[tuple[str, str]]:
        """Return where a user can go on from an error page: addresses with their texts, the best first."""
        again = escape_leading_slashes(self.request.get_full_path())
        if isinstance(error, errors.FormExpired):
            return [(again, gettext("Open the page again"))]
        if not hasattr(self, "tenant"):
            return [(again, gettext("Try again"))] if status >= 500 and self.request.method == "GET" else []
        if status == 429 or status >= 500:
            # Nothing is read: the database may be what is down. A form is not sent again by a link.
            is_form = self.request.method == "POST"
            return [(again, gettext("Open the page again") if is_form else gettext("Try again"))]
        return self.links_on()

    def links_on(self) -> list[tuple[str, str]]:
        """Return where a user can go on from an error page while the tenant's database can be read."""
        return [(f"{self.root}/signin", gettext("Sign in"))]

    @property
    def form_targets(self) -> tuple[str, ...]:
        """Return origins that a form of this page may lead to.

        Chromium applies `form-action` to every redirect after a form.
        """
        return ()

    def _protect(self, response: HttpResponse) -> None:
        """Set the headers that keep other sites, scripts and caches out. The middleware adds COOP and no-referrer."""
        targets = " ".join(["'self'", *self.form_targets])
        response.headers["Content-Security-Policy"] = (
            f"default-src 'none'; script-src 'nonce-{self.nonce}'; style-src 'nonce-{self.nonce}'; "
            f"img-src 'self' data:; connect-src 'self'; form-action {targets}; frame-ancestors 'none'; base-uri 'none'"
        )
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Robots-Tag"] = "noindex"


class FormPage(Page):
    """A page with one form. It is shown again with what is wrong, also with an error that `submit` raises."""

    template: ClassVar[str]
    title: ClassVar["StrOrPromise"]
    form_class: ClassVar[type[PageForm]]
    focuses: ClassVar[bool] = True
    # Errors that the form shows, and those among them that are not its own.
    shown: ClassVar[tuple[type[ApiError], ...]] = (ApiError,)
    not_shown: ClassVar[tuple[type[ApiError], ...]] = ()

    def get(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Show the form."""
        return self.show(self.new_form())

    def post(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        """Submit the form."""
        return self.process(self.new_form(request.POST))

    def new_form(self, data: QueryDict | None = None) -> PageForm:
        """Return the form, empty or with what was sent."""
        return self.form_class(data, **self.form_options())

    def form_options(self) -> dict[str, Any]:
        """Return further arguments of the form."""
        return {}

    def process(self, form: PageForm) -> HttpResponse:
        """Submit a form that was sent, if it is valid."""
        if not form.is_valid():
            return self.show(form)
        try:
            return self.submit(form)
        except self.not_shown:
            raise
        except self.shown as error:
            self.add_error(form, error)
            return self.show(form, error)

    def submit(self, form: PageForm) -> HttpResponse:
        """Do what the valid form is for, and return the next page."""
        raise NotImplementedError

    def add_error(self, form: PageForm, error: ApiError) -> None:
        """Show an error of `submit` in the form."""
        errors.add_to(form, error)

    def show(self, form: PageForm, error: ApiError | None = None) -> HttpResponse:
        """Return the page with this form."""
        form = form.focus() if self.focuses else form
        return self.page(self.template, self.title, self.context(), form=form, error=error)

"""Logout that an application asks for (OpenID Connect RP-Initiated Logout 1.0)."""

from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from openid.clients import find_client
from openid.errors import LogoutRejected
from openid.pages.journey import JourneyPage, source_of
from openid.pages.journey_state import FORM_TOKEN
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.sessions.ending import end_sessions
from userflow.sessions.id_tokens import Hint, UnverifiedHint, read_hint

PARAMETERS = ("id_token_hint", "client_id", "post_logout_redirect_uri", "state")


@dataclass(frozen=True, slots=True)
class LogoutRequest:
    """A checked request: the session that it is about, and where the browser goes afterwards."""

    hint: Hint | None
    # Empty without one.
    redirect: str


class LogoutPage(JourneyPage):
    """End the browser's session and those of the applications that it has signed in, then return to the application.

    Without a hint about the browser's own user the page asks first: any site can send a browser here.
    """

    from_applications = True
    changes_by_get = True
    # Where the question's form leads to in the end.
    target = ""

    @property
    def form_targets(self) -> tuple[str, ...]:
        return (source_of(self.target),) if self.target else ()

    def get(self, request: HttpRequest) -> HttpResponse:
        """Sign out, or ask."""
        logout_request = self._logout_request(request)
        if self.lacks_cookies:
            return self._go_on_with_cookies(request)
        is_own = logout_request.hint is not None and (
            self.session is None or self.session.user_id == logout_request.hint.user_id
        )
        if is_own or (self.session is None and logout_request.hint is None):
            return self._leave(logout_request)
        assert self.session is not None  # otherwise one of the two conditions above holds
        self.target = logout_request.redirect
        context = {"user": self.session.user, "sent": self._sent(request)}
        return self.page("sign_out", _("Sign out?"), context)

    def post(self, request: HttpRequest) -> HttpResponse:
        """Sign out after the question; or the same as GET for an application that sends a form."""
        if FORM_TOKEN in request.POST:
            return self._leave(self._logout_request(request))
        return self.get(request)

    def _check_form(self, request: HttpRequest) -> None:
        # An application's form has no token of ours, and is answered like a link: it ends nothing without a hint or a question.
        if FORM_TOKEN in request.POST:
            super()._check_form(request)

    def _go_on_with_cookies(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the same request as a link, with which the browser sends its cookies from another site too."""
        sent = self._sent(request)
        return HttpResponse(
            status=303, headers={"Location": f"{self.root}/logout" + (f"?{urlencode(sent)}" if sent else "")}
        )

    def _sent(self, request: HttpRequest) -> dict[str, str]:
        return {name: value for name in PARAMETERS if (value := self._parameter(request, name))}

    def _logout_request(self, request: HttpRequest) -> LogoutRequest:
        """Check the parameters. Raises LogoutRejected: the browser is never sent to an unregistered address."""
        sent = {name: self._parameter(request, name) for name in PARAMETERS}
        hint, is_old = self._hint(sent["id_token_hint"], sent["client_id"])
        client_id = sent["client_id"] or (str(hint.client_id) if hint else "")
        target = sent["post_logout_redirect_uri"]
        # An old hint does not name the client either (section 4), and the user should not stay signed in because of it.
        if not target or (is_old and not client_id):
            return LogoutRequest(hint, "")
        client = find_client(self.tenant, client_id) if client_id else None
        if client is None or target not in client.post_logout_redirect_uris:
            raise LogoutRejected("post_logout_redirect_uri is not registered for the client.")
        if sent["state"]:
            target += ("&" if urlsplit(target).query else "?") + urlencode({"state": sent["state"]})
        return LogoutRequest(hint, target)

    def _hint(self, token: str, client_id: str) -> tuple[Hint | None, bool]:
        """Return the hint of the request, or None, and whether it is one that cannot be verified any more.

        Such a request counts as one without a hint: the page asks. Raises LogoutRejected.
        """
        if not token:
            return None, False
        hint = read_hint(self.tenant, token)
        # An unverified one must at least name a client of this tenant: others are of another issuer.
        if hint is None or (isinstance(hint, UnverifiedHint) and find_client(self.tenant, hint.client_id) is None):
            raise LogoutRejected("id_token_hint is no ID token of this issuer.")
        if client_id not in ("", str(hint.client_id)):
            raise LogoutRejected("id_token_hint was issued to another client.")
        return (None, True) if isinstance(hint, UnverifiedHint) else (hint, False)

    def _parameter(self, request: HttpRequest, name: str) -> str:
        """Return a parameter; raises LogoutRejected if it was sent twice."""
        values = [*request.GET.getlist(name), *request.POST.getlist(name)]
        if len(set(values)) > 1 or any("\x00" in value for value in values):
            raise LogoutRejected(f"{name} was sent more than once.")
        return values[0] if values else ""

    def _leave(self, logout_request: LogoutRequest) -> HttpResponse:
        with self.entered(), END_USERS.atomic():
            browser_session = self.held_session()
            if browser_session is not None:
                self._end(browser_session)
            if logout_request.hint is not None:
                self._end_hinted(logout_request.hint)
        if logout_request.redirect:
            return self.leave_session(self.to_application(logout_request.redirect))
        return self.signed_out("signed_out")

    def _end_hinted(self, hint: Hint) -> None:
        """End the session of the application that the ID token is about, and no other.

        ID tokens are in logs and in the hands of every application: only the browser's cookie ends the sign-in itself.
        """
        session = EndUserSession._default_manager.filter(pk=hint.session_id, user_id=hint.user_id).first()
        if session is not None:
            self._end(session)

    def _end(self, session: EndUserSession) -> None:
        ended = end_sessions(END_USERS, user_id=session.user_id, session_id=session.pk, reason="signed_out")
        if ended:
            END_USERS.record("session.ended", target=("user", session.user_id), details={"sessions": ended})

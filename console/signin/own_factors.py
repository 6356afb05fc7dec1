"""The second factors of the signed-in user: passkeys, authenticator app and backup codes.

A user whose policy requires a factor, and who has none, is sent here after the password. The proof for the enrollment is
then the ticket of that sign-in; otherwise it is that of the last re-authentication, which works once.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Final
from urllib.parse import quote
from uuid import UUID

from django.contrib import messages
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from console.frame.access import Context, Page, staff_or_none, step_up_first, to_step_up
from console.frame.lists import uuid_or_none
from console.frame.records import Text
from console.frame.sent_forms import processed_each_time
from console.signin import errors, forms, sign_in_state
from console.signin.errors import page
from console.signin.proofs import ProofConfirmView, proof_in
from console.signin.views import agent, only_forms
from identity_platform.api.email_addresses import shown_address
from identity_platform.api.errors import ApiError
from identity_platform.api.views import Arguments
from mfa.enrollment import enrollment_action
from mfa.errors import SecretNotIssued
from mfa.factors import BACKUP_CODE, TOTP, WEBAUTHN, list_factors, remove_factor
from mfa.totp import actions as totp
from mfa.webauthn import registration as passkeys
from userflow.accounts.realms import ADMINS
from userflow.accounts.session_policy import AAL2
from userflow.errors import InsufficientAuthentication, NotSignedInByTicket, ProofTokenInvalid
from userflow.sessions.assurance import Action
from userflow.signin.caller import Caller
from userflow.signin.delivery import ConsoleSession

# Errors that lead to another page: the proof of the session or of the sign-in no longer counts.
_PROOF_LOST: Final = (NotSignedInByTicket, InsufficientAuthentication, ProofTokenInvalid)


@dataclass(frozen=True, slots=True)
class Enroller:
    """The user who enrolls factors, and the proof for it."""

    email: str
    caller: Caller
    # False while a first factor must be enrolled before anything else.
    inside: bool
    next: str
    # The sign-in that the first factor completes.
    mfa_token: str | None = None

    @property
    def methods(self) -> list[str]:
        """Return the methods of the signed-in user, none for a user who waits for the first factor."""
        return list(self.caller.principal.user["mfa_methods"]) if self.caller.principal is not None else []

    @property
    def arguments(self) -> Arguments:
        """Return the arguments that all actions on the user's factors take."""
        return {"realm": ADMINS, "tenant_id": None, "email": self.email, "caller": self.caller}

    @property
    def frame(self) -> str:
        """Return the base template of the page."""
        return "console/signin/signed_in_frame.html" if self.inside else "console/signin/frame.html"


def enroller_at(request: HttpRequest) -> Enroller | None:
    """Return the user who may enroll factors, None if there is none."""
    staff = staff_or_none(request)
    if staff is not None:
        caller = Caller(principal=staff.principal)
        return Enroller(staff.user.email, caller, inside=True, next=reverse("admin:my_sign_in"))
    waiting = sign_in_state.enrolling(request)
    if waiting is None:
        return None
    caller = Caller(ticket=waiting.ticket, delivery=ConsoleSession(agent(request)))
    return Enroller(waiting.email, caller, inside=False, next=waiting.next, mfa_token=waiting.mfa_token)


def enrollment_page(kind: str) -> Callable[[Page], Page]:
    """Decorate a page that adds a factor of this kind, or backup codes, for a user who has just confirmed who it is, or a
    sign-in that waits for its first factor.

    Errors that the page does not show itself are messages on the overview.
    """

    def decorate(view: Page) -> Page:
        @never_cache
        @wraps(view)
        def guarded(request: HttpRequest) -> HttpResponse:
            return _guarded(request, view, kind)

        return guarded

    return decorate


def _guarded(request: HttpRequest, view: Page, kind: str) -> HttpResponse:
    enroller = enroller_at(request)
    if enroller is None:
        return HttpResponseRedirect(sign_in_state.with_next("admin:login", reverse("admin:my_sign_in")))
    if enroller.inside:
        action = Action.RENEW_BACKUP_CODES if kind == BACKUP_CODE else enrollment_action(enroller.methods, kind)
        if (step_up := step_up_first(request, action, back=_return_path(request))) is not None:
            return step_up
        if not sign_in_state.has_proof(request):
            return to_step_up(request, back=_return_path(request))
        enroller = replace(
            enroller, caller=replace(enroller.caller, proof={"proof_token": request.session.get(sign_in_state.PROOF)})
        )
    try:
        response = view(request, enroller)
    except (InsufficientAuthentication, ProofTokenInvalid):
        sign_in_state.take_proof(request)
        return to_step_up(request, back=_return_path(request))
    except NotSignedInByTicket as problem:
        # The sign-in that the factor would complete has expired.
        request.session.flush()
        messages.error(request, errors.in_words(problem))
        return HttpResponseRedirect(sign_in_state.with_next("admin:login", enroller.next))
    except ApiError as problem:
        messages.error(request, errors.in_words(problem))
        return HttpResponseRedirect(reverse("admin:my_sign_in"))
    return response


def _return_path(request: HttpRequest) -> str:
    """Return the page to return to: the overview for a button on it."""
    return reverse("admin:my_sign_in") if request.method == "POST" else request.get_full_path()


@only_forms
@enrollment_page(WEBAUTHN)
def add_passkey(request: HttpRequest, enroller: Enroller) -> HttpResponse:
    """Enroll a passkey with a name."""
    form = forms.NewPasskeyForm(request.POST or None)
    error: ApiError | None = None
    if request.method == "POST" and form.is_valid():
        try:
            given = form.cleaned_data
            done = passkeys.finish_registration(
                **enroller.arguments, credential=given["credential"], name=given["name"], mfa_token=enroller.mfa_token
            )
        except _PROOF_LOST:
            raise
        except ApiError as problem:
            error = problem
            errors.add_to(form, problem)
        else:
            sign_in_state.take_proof(request)
            if done.signed_in is not None:
                sign_in_state.enter(request, done.signed_in, next_path=enroller.next)
            messages.success(request, _("The passkey is enrolled."))
            return HttpResponseRedirect(enroller.next)
    context = {"frame": enroller.frame, "title": _("Add a passkey"), "form": form}
    return page(request, "console/signin/add_passkey.html", context, error=error)


@processed_each_time
@require_POST
@enrollment_page(WEBAUTHN)
def creation_options(request: HttpRequest, enroller: Enroller) -> HttpResponse:
    """Return the options for `navigator.credentials.create()`."""
    try:
        options = passkeys.begin_registration(**enroller.arguments)
    except ApiError as error:
        return JsonResponse({"message": errors.in_words(error)}, status=errors.status_of(error))
    return JsonResponse(options)


@only_forms
@enrollment_page(TOTP)
def set_up_app(request: HttpRequest, enroller: Enroller) -> HttpResponse:
    """Show a new secret, and enroll it with its first code."""
    form = forms.NewAppForm(request.POST if "code" in request.POST else None)
    if request.method != "POST":
        # Only the button creates a secret: few may be pending, and a page view must not use one up.
        context = {"frame": enroller.frame, "title": _("Set up an authenticator app")}
        return page(request, "console/signin/begin_app.html", context)
    if not form.is_bound:
        return _new_secret(request, enroller)
    if not form.is_valid():
        return _same_secret(request, enroller, form)
    given = form.cleaned_data
    try:
        done = totp.confirm_totp_setup(
            **enroller.arguments, secret=given["secret"], code=given["code"], mfa_token=enroller.mfa_token
        )
    except SecretNotIssued:
        return _too_late(request, enroller)
    except _PROOF_LOST:
        raise
    except ApiError as problem:
        errors.add_to(form, problem)
        return _same_secret(request, enroller, form, error=problem)
    sign_in_state.take_proof(request)
    if done.signed_in is not None:
        sign_in_state.enter(request, done.signed_in, next_path=enroller.next)
    return _codes_page(request, enroller, done.backup_codes, _("The authenticator app is enrolled."))


def _new_secret(request: HttpRequest, enroller: Enroller) -> HttpResponse:
    setup = totp.begin_totp_setup(**enroller.arguments)
    return _app_page(request, enroller, forms.NewAppForm(initial={"secret": setup.secret}), setup)


def _same_secret(
    request: HttpRequest, enroller: Enroller, form: forms.NewAppForm, *, error: ApiError | None = None
) -> HttpResponse:
    """Show the scanned secret again after a wrong code."""
    try:
        setup = totp.show_totp_setup_again(**enroller.arguments, secret=form.data.get("secret", ""))
    except SecretNotIssued:
        return _too_late(request, enroller)
    return _app_page(request, enroller, form, setup, error=error)


def _too_late(request: HttpRequest, enroller: Enroller) -> HttpResponse:
    messages.error(request, _("The secret expired after ten minutes. Scan the new one."))
    return _new_secret(request, enroller)


def _app_page(
    request: HttpRequest,
    enroller: Enroller,
    form: forms.NewAppForm,
    setup: totp.Setup,
    *,
    error: ApiError | None = None,
) -> HttpResponse:
    context = {"frame": enroller.frame, "title": _("Set up an authenticator app"), "form": form, "setup": setup}
    return page(request, "console/signin/set_up_app.html", context, status=400 if form.is_bound else 200, error=error)


@require_POST
@enrollment_page(BACKUP_CODE)
def new_backup_codes(request: HttpRequest, enroller: Enroller) -> HttpResponse:
    """Create ten new backup codes; the old ones become invalid."""
    codes = totp.regenerate_backup_codes(**enroller.arguments)
    sign_in_state.take_proof(request)
    return _codes_page(request, enroller, codes, _("These codes are new. The earlier codes are invalid."))


def _codes_page(request: HttpRequest, enroller: Enroller, codes: list[str], said: str) -> HttpResponse:
    text = "\n".join([_("Backup codes of %(email)s") % {"email": shown_address(enroller.email)}, "", *codes, ""])
    context = {
        "frame": enroller.frame,
        "title": _("Backup codes"),
        "said": said,
        "codes": codes,
        "file": "data:text/plain;charset=utf-8," + quote(text),
        "go_on": enroller.next,
    }
    return page(request, "console/signin/backup_codes.html", context, status=200)


class RemoveFactor(ProofConfirmView):
    permissions = ()
    list_page = "admin:my_sign_in"
    action = Action.REMOVE_FACTOR
    title = _("Remove a factor")
    submit = _("Remove")
    form_class = forms.ProofForm

    factor_id: UUID
    factor: Context
    is_last: bool

    def load(self) -> None:
        factor_id = uuid_or_none(self.kwargs["factor_id"])
        listed = list_factors(realm=ADMINS, tenant_id=None, user_id=self.staff.user.pk)["factors"]
        factor = next((factor for factor in listed if factor["id"] == factor_id), None)
        if factor_id is None or factor is None:
            raise Http404
        self.factor_id, self.factor, self.is_last = factor_id, factor, len(listed) == 1
        text = _("You will no longer sign in with “%(name)s”.")
        if factor["kind"] == TOTP:
            text += " " + _("Your backup codes are removed too.")
        if self.is_last:
            text += " " + _("It is your only second factor: then your password alone will be enough to sign in as you.")
        self.text = text

    def run(self) -> HttpResponse:
        self.load()
        if self.is_last and self.staff.principal.required_acr == AAL2:
            messages.error(
                self.request, _("You must have a second factor: add another one before you remove this one.")
            )
            return HttpResponseRedirect(self.get_back_url())
        return super().run()

    def names(self) -> Context:
        return {"name": self.factor["name"]}

    def act(self, form: Form) -> Text:
        remove_factor(
            principal=self.staff.principal,
            factor_id=self.factor_id,
            proof=proof_in(self.request, form.cleaned_data),
        )
        if self.is_last:
            sign_in_state.without_factor(self.request)
        return _("“%(name)s” is removed.") % self.names()

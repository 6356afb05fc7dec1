"""One's own sign-in: passkeys, authenticator app, backup codes, password and sessions.

Who must have a factor and has none is led here after the password, and to nothing else: then the proof that lets one
enrol is the ticket of that sign-in, otherwise it is the fresh sign-in itself (the ladder of mfa.enrollment).
"""

from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Final
from urllib.parse import quote

from django.contrib import admin, messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from console.frame.access import Page, staff_at, staff_or_none
from console.frame.confirm import confirmed
from console.frame.lists import uuid_or_none
from console.frame.step_up import step_up_first, to_step_up
from console.signin import errors, forms, steps
from console.signin.errors import page
from console.signin.proofs import passkeys_possible, proof_in, with_proof
from console.signin.views import agent, only_forms
from identity_platform.api.errors import ApiError
from mfa.enrollment import Caller
from mfa.errors import SecretNotIssued
from mfa.factors import TOTP, WEBAUTHN, list_factors, remove_factor
from mfa.totp import actions as totp
from mfa.webauthn import registration as passkeys
from mfa.webauthn.grants import SECOND_STEP_AMR
from userflow.accounts.realms import ADMINS
from userflow.accounts.session_policy import AAL2
from userflow.errors import InsufficientAuthentication, NotSignedInByTicket
from userflow.passwords.actions import change_password
from userflow.sessions.actions import end_one_session, end_others, list_sessions
from userflow.sessions.assurance import Action
from userflow.sessions.issue import TokenPair

SESSIONS_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class Enroller:
    """Whoever may enrol factors on these pages, and by which proof."""

    email: str
    caller: Caller
    # False while a first factor must be enrolled before anything else opens.
    inside: bool
    next: str
    # The sign-in that the first factor completes.
    mfa_token: str | None = None

    @property
    def frame(self) -> str:
        """The template around the page."""
        return "console/signin/signed_in_frame.html" if self.inside else "console/signin/frame.html"


def enroller_at(request: HttpRequest) -> Enroller | None:
    """Who asks; None for nobody."""
    staff = staff_or_none(request)
    if staff is not None:
        caller = Caller(principal=staff.principal)
        return Enroller(staff.user.email, caller, inside=True, next=reverse("admin:my_sign_in"))
    waiting = steps.enrolling(request)
    if waiting is None:
        return None
    caller = Caller(ticket=waiting.ticket, user_agent=agent(request))
    return Enroller(waiting.email, caller, inside=False, next=waiting.next, mfa_token=waiting.mfa_token)


def for_enrolling(view: Page) -> Page:
    """A page that adds a factor: for a fresh sign-in, or for one that waits for its first factor."""

    @never_cache
    @wraps(view)
    def guarded(request: HttpRequest) -> HttpResponse:
        who = enroller_at(request)
        if who is None:
            return HttpResponseRedirect(steps.with_next("admin:login", reverse("admin:my_sign_in")))
        if who.inside and (step_up := step_up_first(request, Action.ADD_FACTOR, back=_asked_from(request))) is not None:
            return step_up
        try:
            return view(request, who)
        except InsufficientAuthentication:
            return to_step_up(request, back=_asked_from(request))

    return guarded


def _asked_from(request: HttpRequest) -> str:
    """The page to return to: a form of one's own list goes back there."""
    return reverse("admin:my_sign_in") if request.method == "POST" else request.get_full_path()


@never_cache
def overview(request: HttpRequest) -> HttpResponse:
    """What one signs in with, and where one is signed in."""
    who = enroller_at(request)
    if who is None:
        return HttpResponseRedirect(steps.with_next("admin:login", reverse("admin:my_sign_in")))
    context = {**admin.site.each_context(request), "frame": who.frame}
    if not who.inside:
        context |= {"title": _("Set up a second factor"), "possible": passkeys_possible()}
        return page(request, "console/signin/choose.html", context)
    principal = staff_at(request).principal
    factors = list_factors(realm=ADMINS, tenant_id=None, user_id=principal.id)
    sessions = list_sessions(by=principal, page=1, limit=SESSIONS_SHOWN)
    context |= {
        "title": _("My sign-in"),
        "passkeys": [factor for factor in factors["factors"] if factor["kind"] == WEBAUTHN],
        "app": next((factor for factor in factors["factors"] if factor["kind"] == TOTP), None),
        "codes_left": factors["backup_codes_remaining"],
        "sessions": sessions.rows,
        "sessions_beyond": sessions.total - len(sessions.rows),
        "this_session": principal.session_id,
        "possible": passkeys_possible(),
    }
    return page(request, "console/signin/my_sign_in.html", context)


# --- passkeys --------------------------------------------------------------------------------------------------------


@only_forms
@for_enrolling
def add_passkey(request: HttpRequest, who: Enroller) -> HttpResponse:
    """Enrol a passkey, with a name to know it by."""
    form = forms.NewPasskeyForm(request.POST or None)
    error: ApiError | None = None
    if request.method == "POST" and form.is_valid():
        try:
            done = passkeys.finish_registration(
                realm=ADMINS,
                tenant_id=None,
                email=who.email,
                response=form.cleaned_data["credential"],
                caller=who.caller,
                name=form.cleaned_data["name"],
                mfa_token=who.mfa_token,
            )
        except NotSignedInByTicket as problem:
            return _begin_again(request, who, problem)
        except InsufficientAuthentication:
            raise
        except ApiError as problem:
            error = problem
            errors.add_to(form, problem)
        else:
            if done.tokens is not None:
                _enter(request, who, done.user, done.tokens, amr=SECOND_STEP_AMR)
            messages.success(request, _("The passkey is enrolled."))
            return HttpResponseRedirect(who.next)
    context = {**admin.site.each_context(request), "frame": who.frame, "title": _("Add a passkey"), "form": form}
    status = 400 if request.method == "POST" else 200
    return page(request, "console/signin/add_passkey.html", context, status=status, error=error)


@require_POST
@for_enrolling
def creation_options(request: HttpRequest, who: Enroller) -> HttpResponse:
    """What `navigator.credentials.create()` is to be asked."""
    try:
        options = passkeys.begin_registration(realm=ADMINS, tenant_id=None, email=who.email, caller=who.caller)
    except ApiError as error:
        return JsonResponse({"message": errors.in_words(error)}, status=errors.status_of(error))
    return JsonResponse(options)


def _enter(request: HttpRequest, who: Enroller, user: Any, tokens: TokenPair, *, amr: tuple[str, ...]) -> None:
    """Complete the sign-in that waited for its first factor."""
    steps.enter(request, user, tokens, amr=(*steps.PASSWORD_AMR, *amr), next_path=who.next)


def _begin_again(request: HttpRequest, who: Enroller, problem: ApiError) -> HttpResponseRedirect:
    """Back to the password: the sign-in that the factor would complete has expired."""
    request.session.flush()
    messages.error(request, errors.in_words(problem))
    return HttpResponseRedirect(steps.with_next("admin:login", who.next))


# --- authenticator app and backup codes ------------------------------------------------------------------------------


@only_forms
@for_enrolling
def set_up_app(request: HttpRequest, who: Enroller) -> HttpResponse:
    """Show a new secret, and enrol it with its first code."""
    if _replaces_app(who.caller) and not steps.has_proof(request):
        raise InsufficientAuthentication
    form = forms.NewAppForm(request.POST if "code" in request.POST else None)
    if request.method != "POST":
        # A page view must not use up one of the few secrets that may wait: that is the button's.
        context = {**admin.site.each_context(request), "frame": who.frame, "title": _("Set up an authenticator app")}
        return page(request, "console/signin/begin_app.html", context)
    if not form.is_bound:
        return _new_secret(request, who)
    if not form.is_valid():
        return _same_secret(request, who, form)
    given = form.cleaned_data
    try:
        done = totp.confirm_totp_setup(
            realm=ADMINS,
            tenant_id=None,
            email=who.email,
            secret=given["secret"],
            code=given["code"],
            caller=_with_proof(request, who.caller),
            mfa_token=who.mfa_token,
        )
    except SecretNotIssued:
        return _too_late(request, who)
    except NotSignedInByTicket as problem:
        return _begin_again(request, who, problem)
    except InsufficientAuthentication:
        raise
    except ApiError as problem:
        errors.add_to(form, problem)
        return _same_secret(request, who, form, error=problem)
    if done.tokens is not None:
        _enter(request, who, done.user, done.tokens, amr=totp.AMR)
    return _codes_page(request, who, done.backup_codes, _("The authenticator app is enrolled."))


def _replaces_app(caller: Caller) -> bool:
    return caller.principal is not None and TOTP in caller.principal.user["mfa_methods"]


def _with_proof(request: HttpRequest, caller: Caller) -> Caller:
    """The caller with the proof of the last step-up, where the app replaces another one."""
    return replace(caller, proof={"proof_token": request.session.get(steps.PROOF)}) if _replaces_app(caller) else caller


def _new_secret(request: HttpRequest, who: Enroller) -> HttpResponse:
    try:
        setup = totp.begin_totp_setup(realm=ADMINS, tenant_id=None, email=who.email, caller=who.caller)
    except InsufficientAuthentication:
        raise
    except ApiError as problem:
        messages.error(request, errors.in_words(problem))
        return HttpResponseRedirect(reverse("admin:my_sign_in"))
    return _app_page(request, who, forms.NewAppForm(initial={"secret": setup.secret}), setup)


def _same_secret(
    request: HttpRequest, who: Enroller, form: forms.NewAppForm, *, error: ApiError | None = None
) -> HttpResponse:
    """After a mistyped code the secret that was scanned stays the one to confirm."""
    try:
        setup = totp.show_totp_setup_again(
            realm=ADMINS, tenant_id=None, email=who.email, secret=form.data.get("secret", ""), caller=who.caller
        )
    except SecretNotIssued:
        return _too_late(request, who)
    except InsufficientAuthentication:
        raise
    except ApiError as problem:
        messages.error(request, errors.in_words(problem))
        return HttpResponseRedirect(reverse("admin:my_sign_in"))
    return _app_page(request, who, form, setup, error=error)


def _too_late(request: HttpRequest, who: Enroller) -> HttpResponse:
    messages.error(request, _("This took longer than ten minutes. Here is a new secret: scan it again."))
    return _new_secret(request, who)


def _app_page(
    request: HttpRequest,
    who: Enroller,
    form: forms.NewAppForm,
    setup: totp.Setup,
    *,
    error: ApiError | None = None,
) -> HttpResponse:
    context = {
        **admin.site.each_context(request),
        "frame": who.frame,
        "title": _("Set up an authenticator app"),
        "form": form,
        "setup": setup,
    }
    return page(request, "console/signin/set_up_app.html", context, status=400 if form.is_bound else 200, error=error)


@require_POST
@for_enrolling
def new_backup_codes(request: HttpRequest, who: Enroller) -> HttpResponse:
    """Ten new backup codes; the old ones are worth nothing from now on."""
    try:
        codes = totp.regenerate_backup_codes(realm=ADMINS, tenant_id=None, email=who.email, caller=who.caller)
    except InsufficientAuthentication:
        raise
    except ApiError as problem:
        messages.error(request, errors.in_words(problem))
        return HttpResponseRedirect(reverse("admin:my_sign_in"))
    return _codes_page(request, who, codes, _("These codes are new; the ones before are void."))


def _codes_page(request: HttpRequest, who: Enroller, codes: list[str], said: str) -> HttpResponse:
    """The codes, once."""
    text = "\n".join([_("Backup codes of %(email)s") % {"email": who.email}, "", *codes, ""])
    context = {
        **admin.site.each_context(request),
        "frame": who.frame,
        "title": _("Backup codes"),
        "said": said,
        "codes": codes,
        "file": "data:text/plain;charset=utf-8," + quote(text),
        "go_on": who.next,
    }
    return page(request, "console/signin/backup_codes.html", context)


def remove(request: HttpRequest, factor_id: str) -> HttpResponse:
    """Remove one of one's own factors."""
    staff = staff_at(request)
    wanted = uuid_or_none(factor_id)
    listed = list_factors(realm=ADMINS, tenant_id=None, user_id=staff.user.pk)["factors"]
    factor = next((factor for factor in listed if factor["id"] == wanted), None)
    if wanted is None or factor is None:
        raise Http404
    back = reverse("admin:my_sign_in")
    if len(listed) == 1 and staff.principal.required_acr == AAL2:
        messages.error(request, _("You must have a second factor: add another one before you remove this one."))
        return HttpResponseRedirect(back)
    text = _("“%(name)s” will no longer sign you in.") % {"name": factor["name"]}
    if factor["kind"] == TOTP:
        text += " " + _("Your backup codes go with it.")
    if len(listed) == 1:
        text += " " + _("It is your only second factor: then your password alone will be enough to be you.")

    def act(given: dict[str, Any]) -> str:
        remove_factor(
            principal=staff.principal,
            factor_id=wanted,
            proof=proof_in(request, given),
            user_agent=agent(request),
        )
        if len(listed) == 1:
            steps.without_factor(request)
        return _("“%(name)s” is removed.") % {"name": factor["name"]}

    return confirmed(
        request,
        title=_("Remove a factor"),
        text=text,
        back=back,
        action=Action.REMOVE_FACTOR,
        act=act,
        submit=_("Remove"),
        **with_proof(request, forms.ProofForm, {}, back=request.get_full_path()),
    )


# --- password --------------------------------------------------------------------------------------------------------


@never_cache
@only_forms
def new_password(request: HttpRequest) -> HttpResponse:
    """Change one's own password; every other session ends."""
    staff = staff_at(request)
    if (step_up := step_up_first(request, Action.CHANGE_OWN_PASSWORD)) is not None:
        return step_up
    form = forms.NewPasswordForm(request.POST or None)
    error: ApiError | None = None
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        try:
            ended = change_password(
                principal=staff.principal,
                proof={"current_password": given["current_password"]},
                new_password=given["new_password"],
            )
        except InsufficientAuthentication:
            return to_step_up(request)
        except ApiError as problem:
            error = problem
            errors.add_to(form, problem)
        else:
            request.session.cycle_key()
            messages.success(
                request,
                _("Your password is changed. Other sessions that ended with it: %(ended)d.") % {"ended": ended},
            )
            return HttpResponseRedirect(reverse("admin:my_sign_in"))
    context = {**admin.site.each_context(request), "title": _("Change my password"), "form": form}
    status = 400 if request.method == "POST" else 200
    return page(request, "console/signin/new_password.html", context, status=status, error=error)


# --- sessions --------------------------------------------------------------------------------------------------------


@require_POST
def end_session(request: HttpRequest, session_id: str) -> HttpResponse:
    """End one of one's own sessions; of this one it is the sign-out."""
    principal = staff_at(request).principal
    wanted = uuid_or_none(session_id)
    own = [session.pk for session in list_sessions(by=principal, page=1, limit=SESSIONS_SHOWN).rows]
    if wanted is None or wanted not in own:
        # Others' sessions are ended on their own pages, with their permission and their own audit.
        messages.info(request, _("This session has ended already."))
        return HttpResponseRedirect(reverse("admin:my_sign_in"))
    end_one_session(by=principal, session_id=wanted, user_id=principal.id)
    if wanted == principal.session_id:
        return steps.leave(request)
    messages.success(request, _("The session is ended."))
    return HttpResponseRedirect(reverse("admin:my_sign_in"))


@require_POST
def end_other_sessions(request: HttpRequest) -> HttpResponse:
    """End every session of one's own but this one."""
    principal = staff_at(request).principal
    ended = end_others(principal=principal)
    messages.success(request, _("Sessions that ended: %(ended)d.") % {"ended": ended})
    return HttpResponseRedirect(reverse("admin:my_sign_in"))

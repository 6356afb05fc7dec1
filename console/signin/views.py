"""Sign-in by password and second factor or by passkey, re-authentication, sign-out, forgotten password."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from console.frame.access import is_signed_in, staff_at, staff_or_none
from console.frame.sent_forms import processed_each_time
from console.signin import errors, forms, proofs, sign_in_state
from console.signin.errors import page
from identity_platform.api.errors import ApiError, NotSignedIn
from mfa.stepup.actions import options_for_step_up, step_up_methods
from mfa.webauthn import authentication as passkeys
from userflow.accounts.principals import Principal
from userflow.accounts.realms import ADMINS
from userflow.passwords.actions import ask_for_admin_reset
from userflow.sessions.ending import end_sessions, sign_out
from userflow.signin.caller import Caller
from userflow.signin.delivery import ConsoleSession
from userflow.signin.password import sign_in_admin

only_forms = require_http_methods(["GET", "HEAD", "POST"])


def agent(request: HttpRequest) -> str:
    """Return the user agent for the list of sessions."""
    return str(request.META.get("HTTP_USER_AGENT", ""))


@never_cache
@only_forms
def sign_in(request: HttpRequest) -> HttpResponse:
    """Sign in by password or passkey. Unknown users, wrong passwords and inactive users get the same response."""
    next_path = sign_in_state.local_path(request, request.POST.get("next") or request.GET.get("next"))
    if request.method != "POST":
        if is_signed_in(request):
            return HttpResponseRedirect(next_path)
        return _sign_in_page(request, forms.SignInForm(), next_path)
    if "credential" in request.POST:
        return _by_passkey_alone(request, next_path)
    form = forms.SignInForm(request.POST)
    if not form.is_valid():
        return _sign_in_page(request, form, next_path)
    try:
        done = sign_in_admin(**form.cleaned_data, delivery=ConsoleSession(agent(request)))
    except ApiError as error:
        form.add_error(None, errors.in_words(error))
        return _sign_in_page(request, form, next_path, error=error)
    end_earlier(request)
    return sign_in_state.after_password(request, done, next_path=next_path)


def _by_passkey_alone(request: HttpRequest, next_path: str) -> HttpResponse:
    said = forms.PasskeyForm(request.POST)
    form = forms.SignInForm()
    if not said.is_valid():
        messages.error(request, _("The browser's response was not understood. Try again."))
        return _sign_in_page(request, form, next_path)
    try:
        done = passkeys.finish_authentication(
            realm=ADMINS,
            tenant_id=None,
            email=None,
            response=said.cleaned_data["credential"],
            caller=Caller(delivery=ConsoleSession(agent(request))),
        )
    except ApiError as error:
        messages.error(request, errors.in_words(error))
        return _sign_in_page(request, form, next_path, error=error)
    assert done.signed_in is not None  # a ceremony without a user name ends with a session or an error
    end_earlier(request)
    return sign_in_state.enter(request, done.signed_in, next_path=next_path)


def end_earlier(request: HttpRequest) -> None:
    """End the earlier console session of this browser."""
    staff = staff_or_none(request)
    if staff is not None:
        principal = staff.principal
        end_sessions(ADMINS, user_id=principal.id, session_id=principal.session_id, reason="signed_in_again")


def _sign_in_page(
    request: HttpRequest, form: forms.SignInForm, next_path: str, *, error: ApiError | None = None
) -> HttpResponse:
    context = {"title": _("Sign in"), "form": form, "next": next_path, "passkeys": proofs.passkeys_possible()}
    return page(request, "console/signin/sign_in.html", context, error=error)


@never_cache
@only_forms
def second_step(request: HttpRequest) -> HttpResponse:
    """Check the second factor after a correct password."""
    waiting = sign_in_state.pending(request)
    if waiting is None:
        return HttpResponseRedirect(reverse("admin:index" if is_signed_in(request) else "admin:login"))
    proof_forms = proofs.ProofForms.of(request, waiting.methods)
    error: ApiError | None = None
    if request.method == "POST" and proof_forms.is_valid():
        try:
            caller = Caller(delivery=ConsoleSession(agent(request)))
            verified = proofs.verify(proof_forms, email=waiting.email, caller=caller, mfa_token=waiting.ticket)
        except ApiError as problem:
            if not proofs.may_try_again(waiting.ticket):
                request.session.flush()
                messages.error(request, _("Too many wrong attempts, or the sign-in has expired. Sign in again."))
                return HttpResponseRedirect(sign_in_state.with_next("admin:login", waiting.next))
            error = problem
            proof_forms.reject(problem)
        else:
            assert verified.signed_in is not None  # the ticket was good, so the sign-in is complete
            return sign_in_state.enter(request, verified.signed_in, next_path=waiting.next)
    context = {**proof_forms.context(), "title": _("Second step"), "email": waiting.email}
    return page(request, "console/signin/second_step.html", context, error=error)


@only_forms
def reauthenticate(request: HttpRequest) -> HttpResponse:
    """Re-authenticate by a factor, or by the password if there is none."""
    staff = staff_at(request)
    next_path = sign_in_state.local_path(request, request.POST.get("next") or request.GET.get("next"))
    methods = [method for method in step_up_methods(principal=staff.principal) if method in proofs.FORMS]
    if not methods:
        # All that the user has is newer than this session.
        sign_out(principal=staff.principal)
        sign_in_state.leave(request)
        messages.warning(request, _("Sign in again to confirm that it is you."))
        return HttpResponseRedirect(sign_in_state.with_next("admin:login", next_path))
    proof_forms = proofs.ProofForms.of(request, methods)
    error: ApiError | None = None
    if request.method == "POST" and proof_forms.is_valid():
        try:
            raised = proofs.step_up_by(proof_forms, principal=staff.principal)
        except ApiError as problem:
            error = problem
            proof_forms.reject(problem)
        else:
            sign_in_state.renew(request, raised)
            return HttpResponseRedirect(next_path)
    first = methods == [proofs.PASSWORD] and bool(staff.user.mfa_methods)
    context = {
        **proof_forms.context(),
        "title": _("Confirm that it is you"),
        "next": next_path,
        "password_first": first,
    }
    return page(request, "console/signin/reauthenticate.html", context, error=error)


@processed_each_time
@never_cache
@require_POST
def passkey_options(request: HttpRequest) -> HttpResponse:
    """Return the options for `navigator.credentials.get()`, for the page with the button."""
    waiting, staff = sign_in_state.pending(request), staff_or_none(request)
    stage = request.POST.get("stage")
    email: str | None = None
    stepping_up: Principal | None = None
    if stage == "second_step" and waiting is not None:
        email = waiting.email
    elif stage == "reauthenticate" and staff is not None:
        stepping_up = staff.principal
    elif stage != "sign_in":
        return JsonResponse({"message": errors.in_words(NotSignedIn(_("Sign in again.")))}, status=403)
    try:
        options = (
            options_for_step_up(principal=stepping_up)
            if stepping_up is not None
            else passkeys.begin_authentication(realm=ADMINS, tenant_id=None, email=email)
        )
    except ApiError as error:
        return JsonResponse({"message": errors.in_words(error)}, status=errors.status_of(error))
    return JsonResponse(options)


@require_POST
def sign_out_here(request: HttpRequest) -> HttpResponse:
    """End this session."""
    sign_out(principal=staff_at(request).principal)
    answer = sign_in_state.leave(request)
    messages.success(request, _("You are signed out."))
    return answer


@never_cache
@only_forms
def forgotten(request: HttpRequest) -> HttpResponse:
    """Mail a link to set a new password. The response is the same whether or not the address is known."""
    form = forms.ForgottenForm(request.POST or None)
    error: ApiError | None = None
    if request.method == "POST" and form.is_valid():
        try:
            ask_for_admin_reset(email=form.cleaned_data["email"])
        except ApiError as problem:
            error = problem
            errors.add_to(form, problem)
        else:
            messages.success(request, _("If an admin user has this address, a mail with a link is sent to it."))
            return HttpResponseRedirect(reverse("admin:login"))
    context = {"title": _("Reset password"), "form": form}
    return page(request, "console/signin/forgotten.html", context, error=error)

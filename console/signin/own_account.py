"""The own sign-in of the signed-in user: an overview, the password and the sessions."""

from typing import Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from console.frame.access import Context, staff_at, step_up_first, to_step_up
from console.frame.lists import uuid_or_none
from console.signin import errors, forms, sign_in_state
from console.signin.errors import page
from console.signin.own_factors import enroller_at
from console.signin.proofs import passkeys_possible
from console.signin.views import only_forms
from identity_platform.api.errors import ApiError
from mfa.factors import TOTP, WEBAUTHN, list_factors
from openid.account.devices import device_in_words
from userflow.accounts.realms import ADMINS
from userflow.errors import InsufficientAuthentication, ProofTokenInvalid
from userflow.passwords.actions import change_password
from userflow.sessions.actions import end_one_session, end_others, list_sessions
from userflow.sessions.assurance import Action

SESSIONS_SHOWN: Final = 50


@never_cache
def overview(request: HttpRequest) -> HttpResponse:
    """Show the own factors and sessions."""
    enroller = enroller_at(request)
    if enroller is None:
        return HttpResponseRedirect(sign_in_state.with_next("admin:login", reverse("admin:my_sign_in")))
    context: Context = {"frame": enroller.frame}
    if not enroller.inside:
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
        "sessions": [(session, device_in_words(session.user_agent)) for session in sessions.rows],
        "sessions_beyond": sessions.total - len(sessions.rows),
        "this_session": principal.session_id,
        "possible": passkeys_possible(),
    }
    return page(request, "console/signin/my_sign_in.html", context)


@never_cache
@only_forms
def new_password(request: HttpRequest) -> HttpResponse:
    """Change the own password; all other sessions end."""
    staff = staff_at(request)
    if (step_up := step_up_first(request, Action.CHANGE_OWN_PASSWORD)) is not None:
        return step_up
    has_factor = bool(staff.principal.user["mfa_methods"])
    if has_factor and not sign_in_state.has_proof(request):
        return to_step_up(request)
    form = forms.NewPasswordForm(data=request.POST or None, has_factor=has_factor)
    error: ApiError | None = None
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        try:
            ended = change_password(
                principal=staff.principal,
                proof={"proof_token": request.session.get(sign_in_state.PROOF)}
                if has_factor
                else {"current_password": given["current_password"]},
                new_password=given["new_password"],
            )
        except (InsufficientAuthentication, ProofTokenInvalid):
            sign_in_state.take_proof(request)
            return to_step_up(request)
        except ApiError as problem:
            error = problem
            errors.add_to(form, problem)
        else:
            sign_in_state.take_proof(request)
            request.session.cycle_key()
            messages.success(
                request,
                _("Your password is changed. Ended sessions: %(ended)d.") % {"ended": ended},
            )
            return HttpResponseRedirect(reverse("admin:my_sign_in"))
    context = {"title": _("Change my password"), "form": form}
    return page(request, "console/signin/new_password.html", context, error=error)


@require_POST
def end_session(request: HttpRequest, session_id: str) -> HttpResponse:
    """End one of the own sessions; ending the current one signs out."""
    principal = staff_at(request).principal
    session_uuid = uuid_or_none(session_id)
    own_session_ids = [session.pk for session in list_sessions(by=principal, page=1, limit=SESSIONS_SHOWN).rows]
    if session_uuid is None or session_uuid not in own_session_ids:
        # Sessions of other users are ended on their own pages, with a permission and an audit event.
        messages.info(request, _("This session has already ended."))
        return HttpResponseRedirect(reverse("admin:my_sign_in"))
    end_one_session(by=principal, session_id=session_uuid, user_id=principal.id)
    if session_uuid == principal.session_id:
        return sign_in_state.leave(request)
    messages.success(request, _("The session is ended."))
    return HttpResponseRedirect(reverse("admin:my_sign_in"))


@require_POST
def end_other_sessions(request: HttpRequest) -> HttpResponse:
    """End all own sessions but the current one."""
    principal = staff_at(request).principal
    ended = end_others(principal=principal)
    messages.success(request, _("Ended sessions: %(ended)d.") % {"ended": ended})
    return HttpResponseRedirect(reverse("admin:my_sign_in"))

"""Sessions of browsers: every way to sign in opens one, and the applications' sessions end with it."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.utils.timezone import now

from identity_platform.api.errors import AccessTokenInvalid
from identity_platform.crypto import hash_token
from mfa.completion import Verified
from mfa.sms import actions as sms
from mfa.totp import actions as totp
from mfa.totp.backup_codes import normalised
from mfa.webauthn import authentication
from tenants.entering.context import in_tenant
from tenants.journals.audit_trails import Owner
from tenants.lifecycle.retention import purge
from tests.mfa.people import code_to, new_user
from tests.mfa.webauthn.passkeys import end_users_of, user_with_passkey
from tests.openid.application_sessions import browser, open_application, session_of, sign_in
from tests.parallel import run_concurrently
from tests.world import PASSWORD, TestTenant
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserRefreshToken, EndUserSession
from userflow.errors import NotSignedInByTicket, WrongCredentials
from userflow.oauth_errors import InvalidGrant
from userflow.sessions.browser import (
    browser_principal,
    find_browser_session,
    rotate_cookie,
)
from userflow.sessions.ending import end_sessions
from userflow.signin.caller import Caller
from userflow.signin.delivery import BrowserCookie
from userflow.signin.password import sign_in_browser
from userflow.signin.pipeline import SignedIn, Waiting

BROWSER = BrowserCookie("Browser")
CALLER = Caller(delivery=BROWSER)


def is_active(tenant: TestTenant, session: EndUserSession) -> bool:
    with in_tenant(tenant.id):
        return EndUserSession.objects.filter(pk=session.pk, ended_at=None).exists()


def opened_by(tenant: TestTenant, result: Verified | totp.Confirmed) -> EndUserSession:
    assert result.signed_in is not None
    return session_of(tenant, result.signed_in.cookie)


# --- ways to sign in -------------------------------------------------------------------------------------------------


def test_password_opens_browser_session_without_tokens(tenant: TestTenant) -> None:
    person = tenant.register()
    result = sign_in_browser(tenant_id=tenant.id, email=person.email, password=PASSWORD, delivery=BROWSER)
    assert isinstance(result, SignedIn)
    assert (result.tokens, len(result.cookie or "")) == (None, 43)
    session = session_of(tenant, result.cookie)
    assert (session.user_id, session.client_id, session.amr) == (person.id, None, ["pwd"])
    with in_tenant(tenant.id):
        assert bytes(session.browser_digest or b"") == hash_token(result.cookie or "")
        assert not EndUserRefreshToken.objects.filter(session_id=session.pk).exists()


def test_wrong_password_opens_no_browser_session(tenant: TestTenant) -> None:
    person = tenant.register()
    with pytest.raises(WrongCredentials):
        sign_in_browser(tenant_id=tenant.id, email=person.email, password="wrong", delivery=BROWSER)
    with in_tenant(tenant.id):
        assert not EndUserSession.objects.filter(user_id=person.id).exclude(browser_digest=None).exists()


def test_totp_and_backup_code_complete_browser_sign_in(tenant: TestTenant) -> None:
    person = new_user(tenant).enrol_totp()
    person.minutes_pass(2)
    for factor in ({"code": person.code()}, {"backup_code": normalised(person.backup_codes[0]) or ""}):
        cookie, ticket = sign_in(tenant, person.email)
        assert cookie is None
        verified = totp.verify_totp(
            realm=END_USERS, tenant_id=tenant.id, email=person.email, caller=CALLER, mfa_token=ticket, **factor
        )
        session = opened_by(tenant, verified)
        assert (session.acr, session.user_agent) == ("aal2", "Browser")


def test_sms_code_completes_browser_sign_in(tenant: TestTenant) -> None:
    person = new_user(tenant).enrol_phone()
    _, ticket = sign_in(tenant, person.email)
    named: dict[str, Any] = {"tenant_id": tenant.id, "client_id": None, "email": person.email, "caller": CALLER}
    sms.request_sms_code(**named, mfa_token=ticket)
    verified = sms.verify_sms_code(**named, code=code_to(person.phone), mfa_token=ticket)
    assert opened_by(tenant, verified).amr == ["pwd", "sms"]


def test_passkey_opens_browser_session(tenant: TestTenant) -> None:
    person, authenticator = user_with_passkey(tenant)
    response = authenticator.get(end_users_of(tenant).options())
    verified = authentication.finish_authentication(
        realm=END_USERS, tenant_id=tenant.id, email=None, response=response, caller=CALLER
    )
    session = opened_by(tenant, verified)
    assert (session.user_id, session.acr, session.client_id) == (person.id, "aal2", None)


def test_required_enrollment_completes_browser_sign_in(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    person = new_user(tenant)
    response = tenant.api.patch(f"/uflow/admin/tenants/{tenant.id}/settings", {"settings": {"mfa_policy": "required"}})
    assert response.status_code == 200, response.content
    waiting = sign_in_browser(tenant_id=tenant.id, email=person.email, password=PASSWORD, delivery=BROWSER)
    assert isinstance(waiting, Waiting)
    assert waiting.enrollment_required
    caller = Caller(ticket=waiting.enrollment_ticket, delivery=BROWSER)
    named: dict[str, Any] = {"realm": END_USERS, "tenant_id": tenant.id, "email": person.email, "caller": caller}
    person.secret = totp.begin_totp_setup(**named).secret
    confirmed = totp.confirm_totp_setup(**named, secret=person.secret, code=person.code(), mfa_token=waiting.mfa_token)
    assert opened_by(tenant, confirmed).acr == "aal2"


def test_browser_ticket_is_rejected_by_application_sign_in(tenant: TestTenant) -> None:
    person = new_user(tenant).enrol_totp()
    person.minutes_pass(2)
    _, ticket = sign_in(tenant, person.email)
    with pytest.raises(NotSignedInByTicket):
        totp.verify_totp(
            realm=END_USERS,
            tenant_id=tenant.id,
            email=person.email,
            caller=Caller(),
            mfa_token=ticket,
            code=person.code(),
        )


# --- the cookie ------------------------------------------------------------------------------------------------------


def test_cookie_is_unknown_in_other_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    cookie, _ = sign_in(tenant, tenant.register().email)
    assert cookie is not None
    with in_tenant(other_tenant.id):
        assert find_browser_session(cookie) is None


def test_rotated_cookie_replaces_the_old_one(tenant: TestTenant) -> None:
    cookie, _ = sign_in(tenant, tenant.register().email)
    session = session_of(tenant, cookie)
    with in_tenant(tenant.id):
        fresh = rotate_cookie(session)
        assert find_browser_session(cookie or "") is None
        found = find_browser_session(fresh)
        assert found is not None
        assert found.pk == session.pk
        end_sessions(END_USERS, user_id=session.user_id, reason="signed_out")
        assert find_browser_session(fresh) is None
        with pytest.raises(AccessTokenInvalid):
            rotate_cookie(session)


def test_browser_session_obeys_limits_and_policy_in_force(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    cookie, _ = sign_in(tenant, tenant.register().email)
    session = session_of(tenant, cookie)
    assert browser_principal_of(tenant, session).permissions == frozenset()
    with in_tenant(tenant.id):
        rows = EndUserSession.objects.filter(pk=session.pk)
        rows.update(last_used_at=now() - timedelta(minutes=2))
        assert find_browser_session(cookie or "") is not None
        assert rows.get().last_used_at > now() - timedelta(minutes=1)
        rows.update(created_at=now() - timedelta(days=400))
        assert find_browser_session(cookie or "") is None
        rows.update(created_at=now())
        assert find_browser_session(cookie or "") is not None
    path = f"/uflow/admin/tenants/{tenant.id}/settings"
    assert tenant.api.patch(path, {"settings": {"mfa_policy": "required"}}).status_code == 200
    with in_tenant(tenant.id):
        assert find_browser_session(cookie or "") is None


def browser_principal_of(tenant: TestTenant, session: EndUserSession) -> Any:
    with in_tenant(tenant.id):
        return browser_principal(session)


# --- applications ----------------------------------------------------------------------------------------------------


def test_child_session_has_the_verification_of_its_parent(tenant: TestTenant) -> None:
    parent = browser(tenant)
    opened = open_application(tenant, parent, binding="k" * 43, userinfo_claims=("email",))
    with in_tenant(tenant.id):
        stored = EndUserSession.objects.get(pk=opened.session.pk)
    assert (stored.parent_id, stored.client_id, stored.user_id) == (parent.pk, tenant.client_id, parent.user_id)
    assert (stored.amr, stored.acr, stored.auth_time) == (parent.amr, parent.acr, parent.auth_time)
    assert (stored.scopes, stored.audiences, stored.userinfo_claims) == (["openid"], ["identity-api"], ["email"])
    assert (stored.dpop_jkt, opened.rights.roles) == ("k" * 43, ("user",))
    assert opened.refresh_token is not None
    assert open_application(tenant, parent, offline=False).refresh_token is None


def test_child_without_audiences_is_for_userinfo_only(tenant: TestTenant) -> None:
    opened = open_application(tenant, browser(tenant), audiences=())
    assert opened.session.audiences[0].endswith(f"/t/{tenant.slug}/userinfo")


def test_ended_or_application_session_opens_no_child(tenant: TestTenant) -> None:
    parent = browser(tenant)
    child = open_application(tenant, parent).session
    with pytest.raises(InvalidGrant):
        open_application(tenant, child)
    with in_tenant(tenant.id):
        end_sessions(END_USERS, user_id=parent.user_id, session_id=parent.pk, reason="signed_out")
    with pytest.raises(InvalidGrant):
        open_application(tenant, parent)


def test_end_of_parent_ends_children(tenant: TestTenant) -> None:
    person = tenant.register()
    parent, other = browser(tenant, person.email), browser(tenant, person.email)
    child, cousin = open_application(tenant, parent).session, open_application(tenant, other).session
    with in_tenant(tenant.id):
        assert end_sessions(END_USERS, user_id=person.id, session_id=parent.pk, reason="signed_out") == 2
    states = [is_active(tenant, session) for session in (parent, child, other, cousin)]
    assert states == [False, False, True, True]


def test_end_of_child_keeps_parent(tenant: TestTenant) -> None:
    parent = browser(tenant)
    child = open_application(tenant, parent).session
    with in_tenant(tenant.id):
        assert end_sessions(END_USERS, user_id=parent.user_id, session_id=child.pk, reason="revoked") == 1
    assert is_active(tenant, parent)


@pytest.mark.parametrize("keeps_child", [True, False])
def test_kept_session_keeps_its_browser(keeps_child: bool, tenant: TestTenant) -> None:
    person = tenant.register()
    parent, other = browser(tenant, person.email), browser(tenant, person.email)
    child, cousin = open_application(tenant, parent).session, open_application(tenant, other).session
    kept = child if keeps_child else parent
    with in_tenant(tenant.id):
        assert end_sessions(END_USERS, user_id=person.id, keep=kept.pk, reason="password_changed") == 2
    states = [is_active(tenant, session) for session in (parent, child, other, cousin)]
    assert states == [True, True, False, False]


def test_deactivated_client_ends_only_its_sessions(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    parent = browser(tenant)
    child = open_application(tenant, parent).session
    path = f"/clientms/tenants/{tenant.id}/clients/{tenant.client_id}"
    assert tenant.api.patch(f"{path}/deactivate").status_code == 200
    assert (is_active(tenant, parent), is_active(tenant, child)) == (True, False)


def test_child_opened_while_parent_ends_does_not_survive(tenant: TestTenant) -> None:
    person = tenant.register()
    for _ in range(5):
        parent = browser(tenant, person.email)

        def end(parent: EndUserSession = parent) -> None:
            with in_tenant(tenant.id):
                end_sessions(END_USERS, user_id=person.id, session_id=parent.pk, reason="signed_out")

        def start(parent: EndUserSession = parent) -> None:
            with suppress(InvalidGrant):
                open_application(tenant, parent)

        run_concurrently([end, start, start, start])
        with in_tenant(tenant.id):
            assert not EndUserSession.objects.filter(parent_id=parent.pk, ended_at=None).exists()


def test_expired_parent_stays_while_a_child_lives(tenant: TestTenant) -> None:
    parent, lonely = browser(tenant), browser(tenant)
    child = open_application(tenant, parent).session
    with in_tenant(tenant.id):
        EndUserSession.objects.filter(pk__in=[parent.pk, lonely.pk]).update(expires_at=now() - timedelta(days=31))
    purge(Owner(tenant.slug, tenant.id))
    with in_tenant(tenant.id):
        left = set(EndUserSession.objects.filter(pk__in=[parent.pk, lonely.pk, child.pk]).values_list("pk", flat=True))
    assert left == {parent.pk, child.pk}

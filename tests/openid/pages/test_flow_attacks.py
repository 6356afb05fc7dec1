"""Attacks on the whole flow in a browser: consent bypass, frames, forged forms, replays, and tokens of another tenant."""

import re
from typing import Any, Final
from uuid import uuid4

import pytest

from openid.models import Consent
from openid.pages.urls import urlpatterns
from tenants.entering.context import in_tenant
from tests.openid.dpop_keys import DpopKey
from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.openid.relying_party import CALLBACK, Application, query_of, register_application
from tests.openid.test_protocol_attacks import error_of, signed_in
from tests.userflow.clients.keys import assertion, key_set, new_key, public_jwk
from tests.userflow.clients.test_assertions import TYPE, issuer
from tests.userflow.invitations.test_invitations import invite, token_of
from tests.userflow.mailbox import code_in, mails_to
from tests.userflow.passwords.test_reset import mails_to as reset_mails_to
from tests.userflow.passwords.test_reset import token_in
from tests.userflow.sessions.clients import basic, form, make_client
from tests.world import PASSWORD, Api, TestTenant, User

# The logo is a picture, which any page may show.
PAGES: Final = [
    str(pattern.pattern).replace("<uuid:factor_id>", str(uuid4()))
    for pattern in urlpatterns
    if str(pattern.pattern) != "logo"
]


# --- clickjacking and forged forms -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_signed_in", [False, True])
def test_no_page_can_be_framed_or_cached(tenant: TestTenant, is_signed_in: bool) -> None:
    visitor = Visitor(tenant)
    if is_signed_in:
        visitor.signs_in(tenant.register())
    for path in (*PAGES, "logout", "authorize", "nothing-here"):
        page = visitor.client.get(f"{visitor.root}/{path}", REMOTE_ADDR=visitor.address)
        assert page.headers["X-Frame-Options"] == "DENY", path
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"], path
        assert "unsafe" not in page.headers["Content-Security-Policy"], path
        assert path == "nothing-here" or page.headers["Cache-Control"] == "no-store", path


def test_no_form_is_taken_without_its_token(tenant: TestTenant, other_tenant: TestTenant) -> None:
    visitor, elsewhere = Visitor(tenant), Visitor(other_tenant)
    visitor.signs_in(tenant.register())
    elsewhere.signs_in(other_tenant.register())
    foreign = re.search(r'name="form_token" value="([^"]+)"', elsewhere.text)
    assert foreign
    statuses = set()
    for path in PAGES:
        for token in ("", "0" * 64, foreign[1]):
            page = visitor.client.post(f"{visitor.root}/{path}", {"form_token": token}, REMOTE_ADDR=visitor.address)
            statuses.add(page.status_code)
            assert page.status_code == 403, path
    assert statuses == {403}


# --- consent ---------------------------------------------------------------------------------------------------------


def consents_of(app: Application, user: User) -> list[list[str]]:
    with in_tenant(app.tenant.id):
        found = Consent.objects.filter(user_id=user.id, client_id=app.client["client_id"])
        return [sorted(consent.scopes) for consent in found]


def at_consent(tenant: TestTenant, user: User, **asked: Any) -> tuple[Visitor, Application]:
    """A browser at the consent page of an application."""
    visitor = Visitor(tenant)
    app = begin(visitor, client={}, **asked)
    visitor.sends(email=user.email, password=PASSWORD)
    assert visitor.at == "consent"
    return visitor, app


def test_consent_page_cannot_be_skipped(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor, app = at_consent(tenant, user)
    query = visitor.query
    for path in (f"continue?{query}", f"consent?{query}&allow=1", f"select-account?{query}", f"signin?{query}"):
        visitor.opens(path)
        assert visitor.page.status_code == 200
        assert "Location" not in visitor.page.headers
    assert query_of(app.authorize(prompt="none").headers["Location"])["error"] == "consent_required"
    # The parameters of the request are those that the server has stored.
    visitor.opens(f"consent?{query}&scope=openid&prompt=none&client_id={uuid4()}")
    assert consents_of(app, user) == []
    assert code_of(visitor.sends(allow="1"))
    assert consents_of(app, user) == [["openid"]]


def test_consent_cannot_be_given_by_another_site(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor, app = at_consent(tenant, user)
    path = f"{visitor.root}/consent?{visitor.query}"
    own = re.search(r'name="form_token" value="([^"]+)"', visitor.text)
    assert own
    attacker, _ = at_consent(tenant, tenant.register())
    foreign = re.search(r'name="form_token" value="([^"]+)"', attacker.text)
    assert foreign
    for token, headers in ((foreign[1], {}), ("", {}), (own[1], {"Sec-Fetch-Site": "cross-site"})):
        body = {"form_token": token, "allow": "1"}
        assert visitor.client.post(path, body, headers=headers, REMOTE_ADDR=visitor.address).status_code == 403
    assert consents_of(app, user) == []


def test_consent_of_user_before_is_not_used(tenant: TestTenant) -> None:
    first, second = tenant.register(), tenant.register()
    visitor, app = at_consent(tenant, first)
    assert code_of(visitor.sends(allow="1"))
    visitor.page = app.authorize(prompt="login")
    visitor._follow()
    visitor.sends(email=second.email, password=PASSWORD)
    assert visitor.at == "consent"
    assert second.email in visitor.words
    assert consents_of(app, second) == []


def test_consent_is_for_its_scopes_only(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor, app = at_consent(tenant, user)
    small = code_of(visitor.sends(allow="1"))
    visitor.page = app.authorize(scope="openid email offline_access")
    visitor._follow()
    assert visitor.at == "consent"
    tokens = app.exchange(small).json()
    assert (tokens["scope"], "refresh_token" in tokens) == ("openid", False)
    visitor.sends(deny="1")
    assert query_of(visitor.page.headers["Location"])["error"] == "access_denied"
    assert consents_of(app, user) == [["openid"]]


# --- PKCE, mix-up, login CSRF ----------------------------------------------------------------------------------------


def test_pushed_request_cannot_leave_pkce_out(tenant: TestTenant) -> None:
    app = signed_in(tenant)
    for changed in ({"code_challenge": None}, {"code_challenge_method": "plain"}, {"code_challenge_method": None}):
        response = Api().post(f"{app.issuer}/par", **form(**app.parameters(**changed)))
        assert error_of(response) == "invalid_request"


def test_attackers_code_fails_in_the_victims_application(tenant: TestTenant) -> None:
    # Login CSRF: the victim's browser brings the attacker's code back to an application that has another verifier.
    attacker, victim = signed_in(tenant), Application(tenant, {})
    victim.client = attacker.client
    location = query_of(attacker.authorize(state="the attacker's").headers["Location"])
    assert location["state"] != victim.parameters()["state"]
    assert error_of(victim.exchange(location["code"])) == "invalid_grant"
    # The honest application cannot use the code any more either: it has been seen.
    assert error_of(attacker.exchange(location["code"])) == "invalid_grant"


# --- replays ---------------------------------------------------------------------------------------------------------


def test_dpop_proof_works_at_one_endpoint_once(tenant: TestTenant, other_tenant: TestTenant) -> None:
    app, other, key = signed_in(tenant), signed_in(other_tenant), DpopKey()
    headers = {"DPoP": key.proof("POST", f"{app.issuer}/token")}
    own = {"client_id": app.client["client_id"]}
    # Of another tenant's endpoint.
    elsewhere = other.exchange(other.code(), headers=headers, client_id=other.client["client_id"])
    assert error_of(elsewhere) == "invalid_dpop_proof"
    tokens = app.exchange(app.code(), headers=headers, **own).json()
    refresh = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], **own}
    assert error_of(app.token(headers=headers, **refresh)) == "invalid_dpop_proof"
    assert error_of(app.exchange(app.code(), headers=headers, **own)) == "invalid_dpop_proof"
    path = f"{app.issuer}/userinfo"
    used = key.headers("GET", path, tokens["access_token"])
    assert [Api().get(path, headers=used).status_code for _ in range(2)] == [200, 401]
    assert Api().get("/authmgr/validate", headers=used).status_code == 401


def test_assertion_works_at_one_endpoint_once(tenant: TestTenant) -> None:
    key = new_key()
    client = make_client(
        tenant, token_endpoint_auth_method="private_key_jwt", jwks=key_set(public_jwk(key)), redirect_uris=[CALLBACK]
    )
    app = Application(tenant, client)
    proof = {"client_assertion_type": TYPE, "client_assertion": assertion(key, client["client_id"], issuer(tenant))}
    assert Api().post(f"{app.issuer}/par", **form(**{**app.parameters(), **proof})).status_code == 201
    for path, more in (
        ("par", app.parameters()),
        ("token", {"grant_type": "client_credentials"}),
        ("introspect", {"token": "x"}),
        ("revoke", {"token": "x"}),
    ):
        assert error_of(Api().post(f"{app.issuer}/{path}", **form(**{**more, **proof}))) == "invalid_client", path


# --- another tenant --------------------------------------------------------------------------------------------------


def test_no_token_is_taken_by_another_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    app, other = signed_in(other_tenant), signed_in(tenant)
    tokens = app.tokens(scope="openid offline_access")
    client = make_client(tenant)
    for token in (tokens["access_token"], tokens["id_token"], tokens["refresh_token"]):
        assert Api(token=token).get(f"{other.issuer}/userinfo").status_code == 401
        shown = Api().post(f"{other.issuer}/introspect", **form(token=token), headers=basic(client))
        assert shown.json() == {"active": False}
        for own in ({"client_id": other.client["client_id"]}, {"client_id": app.client["client_id"]}):
            revoked = Api().post(f"{other.issuer}/revoke", **form(token=token, **own))
            # Unknown (RFC 7009 section 2.2), or of another client.
            assert revoked.status_code == 200 or error_of(revoked) in ("invalid_client", "unauthorized_client")
        assert error_of(other.token(grant_type="refresh_token", refresh_token=token)) == "invalid_grant"
    hint = {"id_token_hint": tokens["id_token"], "prompt": "none"}
    assert query_of(other.authorize(**hint).headers["Location"])["error"] == "invalid_request"
    assert other.browser.get(f"{other.issuer}/logout", {"id_token_hint": tokens["id_token"]}).status_code == 400
    # Nothing of it has ended.
    assert Api(token=tokens["access_token"]).get(f"{app.issuer}/userinfo").status_code == 200
    assert app.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"]).status_code == 200


def test_mailed_tokens_are_of_one_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    visitor, user = Visitor(other_tenant), tenant.register()
    forgot = {"email": user.email, "tenant_id": str(tenant.id)}
    assert Api().post("/uflow/auth/enduser/password/forgot", forgot).status_code == 200
    reset, invitation = token_in(reset_mails_to(user.email)[-1]), token_of(invite(tenant, "end_user"))
    verification = mails_to(user.email, "verify")[-1]
    for path, sent in (
        ("reset", {"token": reset, "password": "another horse 9 battery"}),
        ("invitation", {"token": invitation, "password": PASSWORD, "name": "Eve"}),
        ("verify-email", {"token": re.findall(r"#token=(\S+)", verification.body)[0]}),
        ("verify-email", {"email": user.email, "code": code_in(verification)}),
    ):
        visitor.opens(path)
        assert visitor.sends(**sent).status_code == 400, path
        assert visitor.session is None
    assert tenant.sign_in(user)["access_token"]


# --- what prompt=none and the pages tell ------------------------------------------------------------------------------


def test_hint_does_not_tell_whether_a_user_exists(tenant: TestTenant) -> None:
    known = tenant.register()
    tenant.sign_in(known)
    seen = []
    for hint in (known.email, "unknown@example.com"):
        app = Application(tenant, register_application(tenant, first_party=True))
        silent = query_of(app.authorize(prompt="none", login_hint=hint).headers["Location"])
        page = app.authorize(login_hint=hint)
        text = page.content.decode().replace(hint, "")
        text = re.sub(r'(nonce|value|href|src|action|data-options)="[^"]*"', r"\1", text)
        seen.append((silent, page.status_code, text))
    assert seen[0] == seen[1]

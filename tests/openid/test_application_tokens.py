"""Tokens of OpenID applications: never more than their session's scopes and audiences, at any entry point."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import jwt
import pytest
from django.conf import settings
from django.utils.timezone import now

from openid.authorization.parameters import SCOPES
from tenants.entering.context import in_tenant
from tests.openid.application_sessions import access_token, allow, browser, open_application
from tests.openid.test_issuers import jwks, metadata
from tests.userflow.endusers.test_roles_and_groups import join
from tests.userflow.sessions.clients import basic, form, make_client
from tests.userflow.sessions.test_refresh import eleven_seconds_pass, refresh
from tests.world import Api, TestTenant, capture_statements
from userflow.accounts.models import Role, RoleBinding
from userflow.accounts.session_models import EndUserSession
from userflow.oauth_errors import InvalidGrant, InvalidScope, InvalidTarget
from userflow.sessions import id_tokens
from userflow.sessions.refresh import refresh_session
from userflow.sessions.verify import OPENID_SCOPES

VALIDATE = "/authmgr/validate"
PLATFORM = "identity-api"
RESOURCE = "https://api.example.com"


def claims_in(token: str) -> dict[str, Any]:
    return dict(jwt.decode(token, options={"verify_signature": False}))


def grant_role(tenant: TestTenant, user_id: UUID, *permissions: str) -> None:
    with in_tenant(tenant.id):
        role = Role.objects.create(name=f"role {user_id}", permissions=list(permissions))
        RoleBinding.objects.create(user_id=user_id, role=role)


def id_token(tenant: TestTenant, session: EndUserSession, **how: Any) -> str:
    with in_tenant(tenant.id) as entered:
        return id_tokens.id_token(id_tokens.claims_of_session(session), tenant=entered, **how)


def logout_token(tenant: TestTenant, session: EndUserSession) -> str:
    with in_tenant(tenant.id) as entered:
        return id_tokens.logout_token(
            tenant=entered, client_id=tenant.client_id, user_id=session.user_id, session_id=session.pk
        )


# --- claims ----------------------------------------------------------------------------------------------------------


def test_access_token_has_claims_of_rfc_9068(tenant: TestTenant) -> None:
    person = tenant.register()
    group = join(tenant, person)
    parent = browser(tenant, person.email)
    opened = open_application(tenant, parent, scopes=("openid", "groups"), audiences=(RESOURCE, PLATFORM))
    token = access_token(tenant, opened)
    claims = claims_in(token)
    assert jwt.get_unverified_header(token)["typ"] == "at+jwt"
    assert (claims["iss"], claims["aud"]) == (metadata(tenant)["issuer"], [RESOURCE, PLATFORM])
    assert (claims["scope"], claims["client_id"], claims["sid"]) == (
        "openid groups",
        str(tenant.client_id),
        str(opened.session.pk),
    )
    assert {"acr", "amr", "auth_time", "jti", "iat", "exp", "sub", "permissions"} <= set(claims)
    assert claims["groups"] == [group]
    assert "roles" not in claims
    assert claims_in(access_token(tenant, opened, first_party=True))["roles"] == ["user"]


def test_access_token_leaves_out_empty_claims(tenant: TestTenant) -> None:
    # The validator of Authlib rejects empty ones, and RFC 9068 section 2.2.3.1 requires none.
    opened = open_application(tenant, browser(tenant), scopes=("openid", "groups", "roles"))
    claims = claims_in(access_token(tenant, opened))
    assert ("groups" in claims, claims["roles"]) == (False, ["user"])


@pytest.mark.parametrize("algorithm", ["ES256", "RS256"])
def test_id_token_verifies_and_cannot_be_overridden(algorithm: str, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    opened = open_application(tenant, browser(tenant))
    access = access_token(tenant, opened)
    token = id_token(
        tenant, opened.session, nonce="n", access_token=access, algorithm=algorithm, claims={"sub": "x", "name": "Ann"}
    )
    key = jwt.PyJWKSet.from_dict(jwks(tenant))[jwt.get_unverified_header(token)["kid"]]
    claims = jwt.decode(
        token, key, algorithms=[algorithm], audience=str(tenant.client_id), issuer=metadata(tenant)["issuer"]
    )
    assert (claims["sub"], claims["name"], claims["nonce"]) == (str(opened.session.user_id), "Ann", "n")
    assert (claims["azp"], claims["sid"]) == (str(tenant.client_id), str(opened.session.pk))
    assert "at_hash" in claims


def test_id_and_logout_tokens_are_no_access_tokens(tenant: TestTenant) -> None:
    session = open_application(tenant, browser(tenant)).session
    for token in (id_token(tenant, session), logout_token(tenant, session)):
        assert Api(token=token).get(VALIDATE).status_code == 401
        key = jwt.PyJWKSet.from_dict(jwks(tenant))[jwt.get_unverified_header(token)["kid"]]
        with pytest.raises(jwt.InvalidAudienceError):
            jwt.decode(token, key, algorithms=["ES256"], audience=PLATFORM)
    assert "nonce" not in claims_in(logout_token(tenant, session))


# --- the platform's API ----------------------------------------------------------------------------------------------


def test_api_takes_only_tokens_for_the_platform(tenant: TestTenant, other_tenant: TestTenant) -> None:
    allow(tenant, audiences=[PLATFORM, RESOURCE])
    parent = browser(tenant)
    statuses = {}
    for audiences in ((PLATFORM,), (RESOURCE, PLATFORM), (RESOURCE,), ()):
        token = access_token(tenant, open_application(tenant, parent, audiences=audiences))
        statuses[audiences] = Api(token=token).get(VALIDATE).status_code
    assert list(statuses.values()) == [200, 200, 401, 401]
    foreign = access_token(other_tenant, open_application(other_tenant, browser(other_tenant)))
    # The other tenant's client may not ask for the platform.
    assert Api(token=foreign).get(VALIDATE).status_code == 401


def test_api_token_ends_with_the_clients_audience(tenant: TestTenant) -> None:
    allow(tenant, audiences=[PLATFORM])
    token = access_token(tenant, open_application(tenant, browser(tenant)))
    assert Api(token=token).get(VALIDATE).status_code == 200
    allow(tenant, audiences=[])
    assert Api(token=token).get(VALIDATE).status_code == 401


def test_api_limits_third_party_to_its_scopes(tenant: TestTenant) -> None:
    person = tenant.register()
    grant_role(tenant, person.id, "invoices:read", "invoices:pay")
    opened = open_application(tenant, browser(tenant, person.email), scopes=("openid", "invoices:read"))
    for first_party, expected in ((False, ["invoices:read"]), (True, ["invoices:pay", "invoices:read"])):
        allow(tenant, audiences=[PLATFORM], scopes=["invoices:read"], first_party=first_party)
        token = access_token(tenant, opened, first_party=first_party)
        permissions = Api(token=token).get(VALIDATE).json()["permissions"]
        assert [name for name in permissions if name.startswith("invoices")] == expected
        assert [name for name in claims_in(token)["permissions"] if name.startswith("invoices")] == expected


def test_step_up_gives_application_no_more(tenant: TestTenant) -> None:
    person = tenant.register()
    grant_role(tenant, person.id, "invoices:read")
    allow(tenant, audiences=[PLATFORM], first_party=True)
    token = access_token(tenant, open_application(tenant, browser(tenant, person.email)), first_party=True)
    response = Api(token=token).post("/authmgr/step-up", {"password": person.password})
    assert response.status_code == 200, response.content
    claims = claims_in(response.json()["access_token"])
    same = ("scope", "aud", "permissions")
    assert [claims[name] for name in same] == [claims_in(token)[name] for name in same]


def test_authorized_read_of_application_costs_one_statement(tenant: TestTenant) -> None:
    allow(tenant, audiences=[PLATFORM])
    api = Api(token=access_token(tenant, open_application(tenant, browser(tenant))))
    assert api.get(VALIDATE).status_code == 200
    with capture_statements() as captured:
        assert api.get(VALIDATE).status_code == 200
    assert captured.counts == (0, 1)


# --- refresh ---------------------------------------------------------------------------------------------------------


def test_refresh_keeps_scopes_and_audiences(tenant: TestTenant) -> None:
    allow(tenant, audiences=[PLATFORM, RESOURCE], first_party=False)
    opened = open_application(tenant, browser(tenant), scopes=("openid", "email"), audiences=(RESOURCE,))
    response = refresh(opened.refresh_token or "")
    assert response.status_code == 200, response.content
    body = response.json()
    assert (body["scope"], body["token_type"]) == ("openid email", "Bearer")
    claims = claims_in(body["access_token"])
    assert (claims["aud"], claims["scope"], claims["sid"]) == (RESOURCE, "openid email", str(opened.session.pk))
    assert Api(token=body["access_token"]).get(VALIDATE).status_code == 401


def test_refresh_narrows_scope_of_one_token_only(tenant: TestTenant) -> None:
    allow(tenant, audiences=[RESOURCE], first_party=False)
    opened = open_application(tenant, browser(tenant), scopes=("openid", "email"), audiences=(RESOURCE,))
    narrow = refresh(opened.refresh_token or "", scope="openid").json()
    assert (narrow["scope"], claims_in(narrow["access_token"])["scope"]) == ("openid", "openid")
    assert refresh(narrow["refresh_token"], scope="openid phone").json()["error"] == "invalid_scope"
    assert refresh(narrow["refresh_token"]).json()["scope"] == "openid email"


def test_refresh_narrows_audiences(tenant: TestTenant) -> None:
    allow(tenant, audiences=[PLATFORM, RESOURCE])
    opened = open_application(tenant, browser(tenant), audiences=(RESOURCE, PLATFORM))
    with pytest.raises(InvalidTarget):
        refresh_session(refresh_token=opened.refresh_token or "", audiences=("https://other.example.com",))
    with pytest.raises(InvalidScope):
        refresh_session(refresh_token=opened.refresh_token or "", scopes=("roles",))
    pair = refresh_session(refresh_token=opened.refresh_token or "", audiences=(RESOURCE,))
    assert claims_in(pair.access_token)["aud"] == RESOURCE
    allow(tenant, audiences=[RESOURCE])
    pair = refresh_session(refresh_token=pair.refresh_token)
    assert claims_in(pair.access_token)["aud"] == RESOURCE


def test_refresh_gives_only_what_the_client_may_ask_for(tenant: TestTenant) -> None:
    person = tenant.register()
    grant_role(tenant, person.id, "invoices:read")
    allow(tenant, audiences=[RESOURCE, PLATFORM], scopes=["invoices:read"], first_party=False)
    scopes = ("openid", "email", "invoices:read")
    opened = open_application(tenant, browser(tenant, person.email), scopes=scopes, audiences=(RESOURCE, PLATFORM))
    before = refresh(opened.refresh_token or "").json()
    assert (before["scope"], claims_in(before["access_token"])["permissions"]) == (" ".join(scopes), ["invoices:read"])
    allow(tenant, audiences=[PLATFORM], scopes=[])
    validated = Api(token=before["access_token"]).get(VALIDATE).json()
    assert "invoices:read" not in validated["permissions"]
    after = refresh(before["refresh_token"]).json()
    claims = claims_in(after["access_token"])
    assert (after["scope"], claims["aud"], claims["permissions"]) == ("openid email", PLATFORM, [])
    allow(tenant, audiences=["https://other.example.com"])
    assert refresh(after["refresh_token"]).json()["error"] == "invalid_target"


def test_every_openid_scope_is_kept_at_refresh() -> None:
    assert set(SCOPES) == OPENID_SCOPES


def test_refresh_of_bound_session_needs_its_key(tenant: TestTenant) -> None:
    opened = open_application(tenant, browser(tenant), binding="k" * 43)
    allow(tenant, audiences=[PLATFORM])
    token = opened.refresh_token or ""
    assert refresh(token).json()["error"] == "invalid_grant"
    with pytest.raises(InvalidGrant):
        refresh_session(refresh_token=token, binding="x" * 43)
    pair = refresh_session(refresh_token=token, binding="k" * 43)
    assert (pair.token_type, claims_in(pair.access_token)["cnf"]) == ("DPoP", {"jkt": "k" * 43})


def test_refresh_reuse_ends_application_session(tenant: TestTenant) -> None:
    allow(tenant, audiences=[PLATFORM])
    parent = browser(tenant)
    opened = open_application(tenant, parent)
    first = opened.refresh_token or ""
    second = refresh(first).json()
    eleven_seconds_pass(tenant)
    assert refresh(first).json()["error"] == "invalid_grant"
    assert refresh(second["refresh_token"]).json()["error"] == "invalid_grant"
    with in_tenant(tenant.id):
        assert EndUserSession.objects.filter(pk=parent.pk, ended_at=None).exists()


def test_application_ends_with_the_limit_of_its_sign_in(tenant: TestTenant) -> None:
    allow(tenant, audiences=[PLATFORM])
    parent = browser(tenant)
    opened = open_application(tenant, parent)
    signed_in_before(tenant, parent, settings.SESSION_SECONDS - 60)
    pair = refresh(opened.refresh_token or "").json()
    late = open_application(tenant, parent)
    assert pair["expires_in"] <= 60
    with in_tenant(tenant.id):
        ends = EndUserSession.objects.filter(parent_id=parent.pk).values_list("expires_at", flat=True)
        assert set(ends) == {parent.created_at + timedelta(seconds=settings.SESSION_SECONDS)}
    assert Api(token=pair["access_token"]).get(VALIDATE).status_code == 200
    signed_in_before(tenant, parent, settings.SESSION_SECONDS + 1)
    assert Api(token=pair["access_token"]).get(VALIDATE).status_code == 401
    for token in (pair["refresh_token"], late.refresh_token or ""):
        assert refresh(token).json()["error"] == "invalid_grant"
    with pytest.raises(InvalidGrant):
        open_application(tenant, parent)


def signed_in_before(tenant: TestTenant, session: EndUserSession, seconds: int) -> None:
    """Move the time at which a browser's session was opened."""
    session.created_at = now() - timedelta(seconds=seconds)
    with in_tenant(tenant.id):
        EndUserSession.objects.filter(pk=session.pk).update(created_at=session.created_at)


def test_refresh_of_ended_parent_is_rejected(tenant: TestTenant) -> None:
    person = tenant.register()
    opened = open_application(tenant, browser(tenant, person.email))
    own = tenant.as_user(person)
    assert own.delete("/authmgr/sessions", query={"user_id": str(person.id)}).status_code == 200
    assert refresh(opened.refresh_token or "").json()["error"] == "invalid_grant"


# --- introspection and revocation ------------------------------------------------------------------------------------


def test_introspection_shows_scope_and_audience(tenant: TestTenant, other_tenant: TestTenant) -> None:
    client = make_client(tenant)
    opened = open_application(tenant, browser(tenant), scopes=("openid", "email"), audiences=(RESOURCE,))
    token = access_token(tenant, opened)
    known = Api().post("/authmgr/token/introspect", **form(token=token), headers=basic(client)).json()
    assert (known["active"], known["aud"], known["scope"]) == (True, RESOURCE, "openid email")
    foreign = basic(make_client(other_tenant))
    assert Api().post("/authmgr/token/introspect", **form(token=token), headers=foreign).json() == {"active": False}


def test_revoked_application_token_ends_its_session_only(tenant: TestTenant) -> None:
    parent = browser(tenant)
    opened = open_application(tenant, parent)
    token = access_token(tenant, opened)
    response = Api().post("/authmgr/token/revoke", **form(token=token, client_id=str(tenant.client_id)))
    assert response.status_code == 200, response.content
    with in_tenant(tenant.id):
        active = EndUserSession.objects.filter(pk__in=[parent.pk, opened.session.pk], ended_at=None)
        assert [row.pk for row in active] == [parent.pk]

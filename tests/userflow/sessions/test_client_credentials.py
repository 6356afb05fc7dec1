"""A client's own token: RFC 6749 section 4.4, with the client authentication of section 2.3.1."""

import base64

import pytest

from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant
from tests.userflow.sessions.clients import FORM, basic, form, make_client
from tests.world import Api, TestTenant, capture_statements
from userflow.sessions import client_uses

PATH = "/authmgr/token"


def test_client_token_by_basic_has_all_scopes(api: Api, tenant: TestTenant) -> None:
    client = make_client(tenant)
    response = api.post(PATH, **form(grant_type="client_credentials"), headers=basic(client))
    assert response.status_code == 200, response.content
    body = response.json()
    assert (body["token_type"], body["expires_in"]) == ("Bearer", 3600)
    assert set(body["scope"].split()) == {"services:read", "services:credentials"}
    assert (response.headers["Cache-Control"], response.headers["Pragma"]) == ("no-store", "no-cache")
    assert "refresh_token" not in body
    seen = Api(token=body["access_token"]).get("/exsvc/debug/auth").json()
    assert (seen["kind"], seen["tenant_id"], seen["client_id"]) == ("client", str(tenant.id), client["client_id"])


def test_client_token_accepts_secret_and_scope_in_body(api: Api, tenant: TestTenant) -> None:
    client = make_client(tenant)
    asked = {"grant_type": "client_credentials", "client_id": client["client_id"], "scope": "services:read"}
    for sent in (form(**asked, client_secret=client["client_secret"]),):
        response = api.post(PATH, **sent)
        assert response.json()["scope"] == "services:read"
    as_json = api.post(PATH, {**asked, "client_secret": client["client_secret"]})
    assert as_json.json()["scope"] == "services:read"


def test_blanks_between_scopes_of_a_client_do_not_count(api: Api, tenant: TestTenant) -> None:
    client = make_client(tenant, scopes=["services:read", "endusers:read"])
    for path in (PATH, f"/t/{tenant.slug}/token"):
        scope = " services:read  endusers:read "
        response = api.post(path, **form(grant_type="client_credentials", scope=scope), headers=basic(client))
        assert response.json()["scope"] == "services:read endusers:read", response.content


@pytest.mark.parametrize("scope", ["services:delete", "services:read services:write", "*", "a\tb"])
def test_client_token_rejects_scope_not_granted(api: Api, tenant: TestTenant, scope: str) -> None:
    response = api.post(PATH, **form(grant_type="client_credentials", scope=scope), headers=basic(make_client(tenant)))
    assert (response.status_code, response.json()["error"]) in {(400, "invalid_scope"), (400, "invalid_request")}


@pytest.mark.parametrize(
    "header",
    [
        None,
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Basic " + base64.b64encode(b"unknown:secret").decode(),
        "Basic " + base64.b64encode(b"00000000-0000-4000-8000-000000000000:secret").decode(),
        "Basic " + base64.b64encode("ä:\x00".encode()).decode(),
        "Digest abc",
    ],
)
def test_client_token_without_secret_is_challenged(api: Api, header: str | None) -> None:
    headers = {"Authorization": header} if header else {}
    response = api.post(PATH, **form(grant_type="client_credentials"), headers=headers)
    assert (response.status_code, response.json()["error"]) == (401, "invalid_client")
    assert response.headers["WWW-Authenticate"].startswith("Basic ")
    assert response.headers["Cache-Control"] == "no-store"


def test_client_token_errors_do_not_tell_clients_apart(api: Api, tenant: TestTenant) -> None:
    client, off = make_client(tenant), make_client(tenant)
    tenant.api.patch(f"/clientms/tenants/{tenant.id}/clients/{off['id']}/deactivate")
    unknown = {**client, "client_id": "00000000-0000-4000-8000-000000000000"}
    responses = [
        api.post(PATH, **form(grant_type="client_credentials"), headers=headers)
        for headers in (basic(client, "ics_wrong"), basic(unknown), basic(off))
    ]
    assert {(response.status_code, response.content) for response in responses} == {(401, responses[0].content)}
    with in_tenant(tenant.id):
        refused = TenantEvent.objects.filter(action="client.refused", outcome="refused")
        targets = set(refused.filter(target_id__in=[client["id"], off["id"]]).values_list("target_id", flat=True))
    assert targets == {client["id"], off["id"]}


def test_client_token_rejects_two_authentications(api: Api, tenant: TestTenant) -> None:
    client = make_client(tenant)
    sent = form(grant_type="client_credentials", client_secret=client["client_secret"])
    assert api.post(PATH, **sent, headers=basic(client)).json()["error"] == "invalid_request"
    other = form(grant_type="client_credentials", client_id=str(tenant.client_id))
    assert api.post(PATH, **other, headers=basic(client)).json()["error"] == "invalid_request"
    same = form(grant_type="client_credentials", client_id=client["client_id"])
    assert api.post(PATH, **same, headers=basic(client)).status_code == 200


def test_client_token_rejects_public_clients(api: Api, tenant: TestTenant) -> None:
    response = api.post(PATH, **form(grant_type="client_credentials", client_id=str(tenant.client_id)))
    assert (response.status_code, response.json()["error"]) == (400, "unauthorized_client")


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ({}, "invalid_request"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": "authorization_code", "code": "x"}, "unsupported_grant_type"),
        ({"grant_type": "refresh_token"}, "invalid_request"),
        ({"grant_type": "refresh_token", "refresh_token": "x"}, "invalid_grant"),
        ({"grant_type": "client_credentials", "client_secret": "x"}, "invalid_request"),
    ],
)
def test_token_errors_have_rfc_6749_form(api: Api, sent: dict[str, str], error: str) -> None:
    response = api.post(PATH, **form(**sent))
    assert response.status_code == 400
    assert response.json()["error"] == error
    assert set(response.json()) == {"error", "error_description"}
    assert '"' not in response.json()["error_description"]


def test_token_error_names_the_parameter(api: Api) -> None:
    missing = api.post(PATH, **form(grant_type=""))
    assert missing.json()["error_description"] == "grant_type: This field is required."
    too_long = api.post(PATH, {"grant_type": "x" * 65, "scope": 5})
    assert too_long.json()["error_description"] == "grant_type: Send at most 64 characters. scope: Send a string."
    other = api.post(PATH, raw=b"x", content_type="text/plain")
    assert other.status_code == 415
    assert FORM in other.json()["error_description"]


def test_token_rejects_repeated_parameter(api: Api, tenant: TestTenant) -> None:
    raw = b"grant_type=client_credentials&grant_type=refresh_token"
    response = api.post(PATH, raw=raw, content_type=FORM, headers=basic(make_client(tenant)))
    assert (response.status_code, response.json()["error"]) == (400, "invalid_request")


def test_client_token_statement_counts(api: Api, tenant: TestTenant) -> None:
    client = make_client(tenant)
    with capture_statements() as first:
        api.post(PATH, **form(grant_type="client_credentials"), headers=basic(client))
    with capture_statements() as second:
        api.post(PATH, **form(grant_type="client_credentials"), headers=basic(client))
    # The first request of a client reads whose it is.
    assert (first.counts, second.counts) == ((1, 2), (0, 2))


def test_client_usage_is_stored_once_a_minute(api: Api, tenant: TestTenant) -> None:
    client = make_client(tenant)
    where = f"/clientms/tenants/{tenant.id}/clients/{client['id']}"
    assert tenant.api.get(where).json()["last_used_at"] is None
    api.post(PATH, **form(grant_type="client_credentials"), headers=basic(client))
    client_uses.store()
    noted = tenant.api.get(where).json()["last_used_at"]
    api.post(PATH, **form(grant_type="client_credentials"), headers=basic(client))
    client_uses.store()
    assert noted
    assert tenant.api.get(where).json()["last_used_at"] == noted

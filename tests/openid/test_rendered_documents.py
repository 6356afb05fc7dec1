"""Metadata and keys come from memory with a strong ETag, and are never older than what they are about."""

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.utils.timezone import now

from openid.metadata import documents
from tenants.entering import lookup
from tenants.entering.context import in_tenant
from tenants.states import State
from tests.copies import change_mapping, change_tenant
from tests.world import Api, TestTenant, capture_statements
from userflow.sessions import signing
from userflow.sessions.models import TenantSigningKey

NewTenant = Callable[[], TestTenant]
METADATA = "/t/{}/.well-known/openid-configuration"
JWKS = "/t/{}/jwks"
PATHS = [METADATA, "/.well-known/oauth-authorization-server/t/{}", JWKS]


def get(tenant: TestTenant, path: str, tag: str | None = None) -> Any:
    return Api().get(path.format(tenant.slug), headers={"If-None-Match": tag} if tag else {})


@pytest.mark.parametrize("path", PATHS)
def test_known_document_is_304(path: str, tenant: TestTenant) -> None:
    complete = get(tenant, path)
    tag = complete.headers["ETag"]
    assert (complete.status_code, complete.headers["Content-Type"]) == (200, "application/json")
    assert tag.startswith('"')
    for sent in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        response = get(tenant, path, sent)
        assert (response.status_code, response.content) == (304, b"")
        for name in ("ETag", "Cache-Control", "Access-Control-Allow-Origin"):
            assert response.headers[name] == complete.headers[name]
    for sent in ('"other"', "nonsense", tag.strip('"')):
        response = get(tenant, path, sent)
        assert (response.status_code, response.content) == (200, complete.content)


@pytest.mark.parametrize("path", PATHS)
def test_head_has_the_headers_alone(path: str, tenant: TestTenant) -> None:
    complete, response = get(tenant, path), Api().call("head", path.format(tenant.slug))
    assert (response.status_code, response.content) == (200, b"")
    for name in ("ETag", "Content-Type", "Cache-Control"):
        assert response.headers[name] == complete.headers[name]


@pytest.mark.parametrize("path", PATHS)
def test_document_costs_the_statement_that_finds_the_tenant(path: str, tenant: TestTenant) -> None:
    tag = get(tenant, path).headers["ETag"]
    for sent in (None, tag):
        with capture_statements() as seen:
            get(tenant, path, sent)
        assert seen.counts == (0, 1)


@pytest.mark.parametrize("path", PATHS)
def test_errors_are_those_of_the_api(path: str, tenant: TestTenant) -> None:
    unknown = Api().get(path.format("unknown"))
    assert (unknown.status_code, unknown.headers["Access-Control-Allow-Origin"]) == (404, "*")
    assert set(unknown.json()) == set(Api().get("/uflow/unknown").json())
    assert "ETag" not in unknown.headers
    for method in ("post", "put", "delete", "options"):
        response = Api().call(method, path.format(tenant.slug))
        assert (response.status_code, response.headers["Allow"]) == (405, "GET, HEAD")


# --- what changes them, as another process commits it ----------------------------------------------------------------


def test_changed_settings_are_in_the_next_document(new_tenant: NewTenant) -> None:
    tenant = new_tenant()
    before = get(tenant, METADATA)
    change_tenant(tenant.id, settings={"app_metadata_claims": ["department"]})
    after = get(tenant, METADATA, before.headers["ETag"])
    assert (after.status_code, "department" in after.json()["claims_supported"]) == (200, True)
    change_tenant(tenant.id, settings={})
    assert get(tenant, METADATA).headers["ETag"] == before.headers["ETag"] != after.headers["ETag"]


def test_changed_slug_is_in_the_next_document(new_tenant: NewTenant) -> None:
    tenant = new_tenant()
    tags, slug = [get(tenant, path).headers["ETag"] for path in PATHS], f"renamed-{secrets.token_hex(4)}"
    change_tenant(tenant.id, slug=slug)
    for path, tag in zip(PATHS, tags, strict=True):
        assert get(tenant, path, tag).status_code == 404
    document = Api().get(METADATA.format(slug)).json()
    assert document["issuer"] == f"{settings.TOKEN_ISSUER}/t/{slug}"


@pytest.mark.parametrize("path", PATHS)
def test_deleted_tenant_has_no_document(path: str, new_tenant: NewTenant) -> None:
    tenant = new_tenant()
    tag = get(tenant, path).headers["ETag"]
    change_mapping(tenant.id, status=State.DELETED)
    for sent in (None, tag):
        assert get(tenant, path, sent).status_code == 404


def test_documents_follow_the_settings_of_the_platform(tenant: TestTenant, settings: Any) -> None:
    before = get(tenant, METADATA)
    settings.CLIENT_CERTIFICATE_HEADER, settings.MTLS_BASE_URL = "X-Client-Certificate", "https://mtls.example.com"
    after = get(tenant, METADATA, before.headers["ETag"]).json()
    assert "mtls_endpoint_aliases" not in before.json()
    assert "mtls_endpoint_aliases" in after


def test_rotated_and_withdrawn_keys_change_the_document(new_tenant: NewTenant) -> None:
    tenant = new_tenant()
    tags = [get(tenant, JWKS).headers["ETag"]]
    signing.rotate_signing_keys(tenant.id)
    tags.append(get(tenant, JWKS, tags[-1]).headers["ETag"])
    signing.withdraw_signing_key(tenant.id, kid=signing.signer(tenant.id).kid)
    tags.append(get(tenant, JWKS, tags[-1]).headers["ETag"])
    assert len(set(tags)) == 3
    with in_tenant(tenant.id):
        valid = TenantSigningKey.objects.exclude(verifies_until__lte=now()).values_list("pk", flat=True)
        assert {key["kid"] for key in get(tenant, JWKS).json()["keys"]} == set(valid)


def test_number_of_documents_in_memory_is_bounded(tenant: TestTenant) -> None:
    row = lookup.find(tenant.id)
    most = documents._render.cache_parameters()["maxsize"]
    assert most is not None
    for number in range(most + 10):
        documents.provider_metadata(replace(row, tenant_id=uuid4(), slug=f"tenant-{number}"))
    assert documents._render.cache_info().currsize == most

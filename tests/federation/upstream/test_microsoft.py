"""Microsoft's applications for all directories: the issuer is that of the directory which the token names."""

from typing import Any

import jwt
import pytest

from federation.upstream.clients import AssertionKey, Rules, UpstreamClient
from federation.upstream.errors import Reason
from tests.federation.upstream.provider import Provider
from tests.federation.upstream.visits import client_of, other_client, reason, sign_in
from userflow.sessions.key_pairs import new_key_pair

DIRECTORY, USER = "72f988bf-86f1-41af-91ab-2d7cd011db47", "00000000-0000-0000-66f3-3332eca7ea81"
OTHER_DIRECTORY = "9188040d-6c67-4c5b-b112-36a304b66dad"


@pytest.fixture
def client(provider: Provider) -> UpstreamClient:
    """Give the provider the shape of Microsoft's endpoint for all directories, and return a client of it."""
    template = f"{provider.issuer}/{{tenantid}}/v2.0"
    provider.metadata = {"issuer": template}
    provider.claims = {"iss": f"{provider.issuer}/{DIRECTORY}/v2.0", "tid": DIRECTORY, "oid": USER, "xms_edov": True}
    return client_of(provider, rules=Rules.MICROSOFT, issuer=template, discovery_base=provider.issuer)


def test_user_of_any_directory_signs_in(provider: Provider, client: UpstreamClient) -> None:
    identity = sign_in(provider, client)
    assert (identity.subject, identity.address_trusted) == (f"{DIRECTORY}:{USER}", True)


def test_assertion_is_for_the_issuer_of_discovery(provider: Provider, client: UpstreamClient) -> None:
    pair = new_key_pair("ES256")
    assert sign_in(provider, other_client(client, credential=AssertionKey(pair.private, pair.kid))).subject
    assertion = next(request.form["client_assertion"] for request in provider.requests if request.path == "/token")
    assert jwt.decode(assertion, options={"verify_signature": False})["aud"] == provider.issuer


@pytest.mark.parametrize("tid", [OTHER_DIRECTORY, ..., None, "{tenantid}", [DIRECTORY]])
def test_issuer_of_another_directory_is_rejected(provider: Provider, client: UpstreamClient, tid: Any) -> None:
    provider.claims["tid"] = tid
    assert reason(provider, client) == Reason.ISSUER_MISMATCH


def test_issuer_of_another_host_is_rejected(provider: Provider, client: UpstreamClient) -> None:
    provider.claims["iss"] = f"https://attacker.example/{DIRECTORY}/v2.0"
    assert reason(provider, client) == Reason.ISSUER_MISMATCH


def test_metadata_of_a_single_directory_are_rejected(provider: Provider, client: UpstreamClient) -> None:
    provider.metadata = {"issuer": f"{provider.issuer}/{OTHER_DIRECTORY}/v2.0"}
    assert reason(provider, client) == Reason.METADATA_ISSUER_MISMATCH


def test_address_that_an_admin_has_set_is_not_trusted(provider: Provider, client: UpstreamClient) -> None:
    provider.claims |= {"email": "victim@customer.example", "email_verified": True, "xms_edov": ...}
    identity = sign_in(provider, client)
    assert (identity.address, identity.address_trusted) == ("victim@customer.example", False)

"""Authorization requests and presets of products."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import pytest

from federation.upstream.authorization import Prompt, new_authorization_request
from federation.upstream.clients import ClientSecret, Rules, UpstreamClient
from federation.upstream.discovery import ProviderMetadata, read_metadata
from federation.upstream.presets import PRESETS, PresetValueInvalid, issuer_of_preset

REDIRECT_URI = "https://login.tenant.example/sso/callback"
DIRECTORY = "72f988bf-86f1-41af-91ab-2d7cd011db47"


def metadata(endpoint: str = "https://idp.example/authorize") -> ProviderMetadata:
    return ProviderMetadata("https://idp.example", endpoint, "https://idp.example/token", "https://idp.example/jwks")


def client_with(**changes: Any) -> UpstreamClient:
    return UpstreamClient(
        **{
            "connection_id": uuid4(),
            "issuer": "https://idp.example",
            "client_id": "client",
            "credential": ClientSecret("secret"),
            "token_endpoint": "https://idp.example/token",
            **changes,
        }
    )


def query_of(
    client: UpstreamClient, prompt: Prompt | None = None, endpoint: str = "https://idp.example/authorize"
) -> dict[str, str]:
    request = new_authorization_request(
        client, metadata(endpoint), redirect_uri=REDIRECT_URI, state="the-state", prompt=prompt
    )
    pairs = parse_qsl(urlsplit(request.url).query, strict_parsing=True)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def test_request_has_state_nonce_and_challenge() -> None:
    query = query_of(client_with())
    assert {name: query[name] for name in ("response_type", "client_id", "redirect_uri", "scope", "state")} == {
        "response_type": "code",
        "client_id": "client",
        "redirect_uri": REDIRECT_URI,
        "scope": "openid email profile",
        "state": "the-state",
    }
    assert query["code_challenge_method"] == "S256"
    assert len(query["nonce"]) == len(query["code_challenge"]) == 43


def test_nonce_and_challenge_are_new_for_each_request() -> None:
    first, second = query_of(client_with()), query_of(client_with())
    assert first["nonce"] != second["nonce"]
    assert first["code_challenge"] != second["code_challenge"]


def test_verifier_is_not_in_the_request() -> None:
    request = new_authorization_request(client_with(), metadata(), redirect_uri=REDIRECT_URI, state="the-state")
    assert len(request.code_verifier) >= 43
    assert request.code_verifier not in request.url


def test_query_of_the_endpoint_stays_without_our_parameters() -> None:
    query = query_of(client_with(), endpoint="https://idp.example/authorize?p=policy&state=attacker&nonce=attacker")
    assert (query["p"], query["state"]) == ("policy", "the-state")
    assert query["nonce"] != "attacker"


def test_prompt_is_sent() -> None:
    prompt = Prompt("jane@customer.example", "login", 0, "urn:mfa", "customer.example")
    query = query_of(client_with(rules=Rules.MICROSOFT), prompt)
    assert (query["login_hint"], query["prompt"], query["max_age"], query["acr_values"], query["domain_hint"]) == (
        *("jane@customer.example", "login", "0", "urn:mfa"),
        "customer.example",
    )
    assert query_of(client_with(rules=Rules.GOOGLE), prompt)["hd"] == "customer.example"
    assert "customer.example" not in query_of(client_with(), Prompt(organization_hint="customer.example")).values()
    github = query_of(client_with(rules=Rules.GITHUB), prompt)
    assert github["login"] == "jane@customer.example"
    assert "prompt" not in github


def test_apple_posts_the_form_only_with_scopes() -> None:
    assert query_of(client_with(rules=Rules.APPLE, scopes=("openid", "email")))["response_mode"] == "form_post"
    assert "response_mode" not in query_of(client_with(rules=Rules.APPLE, scopes=("openid",)))
    assert "response_mode" not in query_of(client_with())


# --- presets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values", "issuer"),
    [
        ("google", {}, "https://accounts.google.com"),
        ("entra", {"directory_id": DIRECTORY.upper()}, f"https://login.microsoftonline.com/{DIRECTORY}/v2.0"),
        ("microsoft", {}, "https://login.microsoftonline.com/{tenantid}/v2.0"),
        ("okta", {"domain": "customer.okta.com"}, "https://customer.okta.com"),
        (
            "ping",
            {"domain": "auth.pingone.eu", "environment_id": DIRECTORY},
            f"https://auth.pingone.eu/{DIRECTORY}/as",
        ),
        (
            "keycloak",
            {"domain": "sso.customer.example:8443", "realm": "staff"},
            "https://sso.customer.example:8443/realms/staff",
        ),
        ("apple", {}, "https://appleid.apple.com"),
        ("github", {}, "https://github.com"),
    ],
)
def test_issuer_of_a_preset(name: str, values: dict[str, str], issuer: str) -> None:
    assert issuer_of_preset(PRESETS[name], values) == issuer


@pytest.mark.parametrize(
    ("name", "values", "missing"),
    [
        ("entra", {}, "directory_id"),
        ("entra", {"directory_id": "common"}, "directory_id"),
        ("okta", {"domain": "customer.okta.com/evil"}, "domain"),
        ("okta", {"domain": "user@customer.okta.com"}, "domain"),
        ("okta", {"domain": "localhost"}, "domain"),
        ("keycloak", {"domain": "sso.customer.example", "realm": "../master"}, "realm"),
        ("keycloak", {"domain": "sso.customer.example", "realm": "{domain}"}, "realm"),
        ("keycloak", {"domain": "sso.customer.example\n", "realm": "staff"}, "domain"),
    ],
)
def test_value_of_another_form_is_rejected(name: str, values: dict[str, str], missing: str) -> None:
    with pytest.raises(PresetValueInvalid) as caught:
        issuer_of_preset(PRESETS[name], values)
    assert caught.value.name == missing


def test_microsoft_metadata_of_all_tenants_have_the_issuer_of_the_preset() -> None:
    # As https://login.microsoftonline.com/common/v2.0/.well-known/openid-configuration has them.
    preset, base = PRESETS["microsoft"], "https://login.microsoftonline.com/common"
    document = {
        "issuer": "https://login.microsoftonline.com/{tenantid}/v2.0",
        "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
        "token_endpoint": f"{base}/oauth2/v2.0/token",
        "jwks_uri": f"{base}/discovery/v2.0/keys",
    }
    assert read_metadata(document, issuer_of_preset(preset, {})).issuer == preset.issuer
    assert preset.discovery_base == f"{base}/v2.0"

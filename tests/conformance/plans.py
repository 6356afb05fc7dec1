"""The plans that are run, and the clients that each one needs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.conformance.keys import new_rsa_key, private_jwk
from tests.conformance.tenants import Tenant
from tests.openid.certificates import SUBJECT, Authority, Certified, self_signed

Configuration = dict[str, Any]
# What the suite asks for with the second of two clients.
QUERY = "?dummy1=lorem&dummy2=ipsum"
FAPI_SCOPES = "openid profile email offline_access"
BOUND = {"security_profile": "fapi2", "tls_client_certificate_bound_access_tokens": True}


@dataclass(frozen=True)
class Plan:
    """A plan of the suite with its variant. `configure` makes the clients, given the tenant and the suite's address."""

    name: str
    title: str
    variant: dict[str, str]
    configure: Callable[[Tenant, str], Configuration]
    on_new_tenant: bool = False


def confidential(tenant: Tenant, callback: str, **fields: Any) -> dict[str, str]:
    """Register a client that may leave PKCE out, as the requests of the suite do; return its id and secret."""
    fields = {"require_pkce": False, "require_nonce": False, **fields}
    client = tenant.add_client(redirect_uris=[f"{callback}/callback"], **fields)
    return {"client_id": client["client_id"], "client_secret": client["client_secret"]}


def openid(tenant: Tenant, callback: str) -> Configuration:
    """Configure the plans of OpenID Connect Core."""
    return {
        "server": {"discoveryUrl": f"{tenant.issuer}/.well-known/openid-configuration"},
        "client": confidential(tenant, callback, token_endpoint_auth_method="client_secret_basic"),
        "client2": confidential(tenant, callback, token_endpoint_auth_method="client_secret_basic"),
        "client_secret_post": confidential(tenant, callback, token_endpoint_auth_method="client_secret_post"),
    }


def logout(tenant: Tenant, callback: str, **fields: str) -> Configuration:
    """Configure the plan of RP-initiated logout."""
    after = [f"{callback}/post_logout_redirect"]
    basic = "client_secret_basic"
    client = confidential(tenant, callback, token_endpoint_auth_method=basic, post_logout_redirect_uris=after, **fields)
    return {"server": {"discoveryUrl": f"{tenant.issuer}/.well-known/openid-configuration"}, "client": client}


def backchannel_logout(tenant: Tenant, callback: str) -> Configuration:
    """Configure the plan of back-channel logout."""
    return logout(tenant, callback, backchannel_logout_uri=f"{callback}/backchannel_logout")


def fapi(tenant: Tenant, callback: str, profile: str = "fapi2") -> Configuration:
    """Configure the plans of FAPI 2.0 with `private_key_jwt` and DPoP."""
    configuration: Configuration = {
        "server": {"discoveryUrl": f"{tenant.issuer}/.well-known/openid-configuration"},
        "resource": {"resourceUrl": f"{tenant.issuer}/userinfo"},
    }
    for role, address in (("client", f"{callback}/callback"), ("client2", f"{callback}/callback{QUERY}")):
        client, keys = tenant.add_signing_client("PS256", redirect_uris=[address], security_profile=profile)
        configuration[role] = {
            "client_id": client["client_id"],
            "scope": FAPI_SCOPES,
            "jwks": keys,
            "dpop_signing_alg": "ES256",
        }
    return configuration


def fapi_with_signed_messages(tenant: Tenant, callback: str) -> Configuration:
    """Configure the plan of FAPI 2.0 Message Signing."""
    return fapi(tenant, callback, "fapi2_message_signing")


def fapi_with_certificates(tenant: Tenant, callback: str) -> Configuration:
    """Configure the plan of FAPI 2.0 with mutual TLS: a certificate of an authority, and a self-signed one."""
    authority, own = Authority(), self_signed()
    issued = authority.issue()
    by_authority = {
        "token_endpoint_auth_method": "tls_client_auth",
        "tls_client_auth_subject_dn": SUBJECT,
        "tls_client_auth_authorities": authority.pem,
    }
    by_own = {"token_endpoint_auth_method": "self_signed_tls_client_auth", "jwks": {"keys": [own.jwk]}}
    configuration = _fapi_server(tenant)
    for number, address, certified, fields in (
        ("", f"{callback}/callback", issued, by_authority),
        ("2", f"{callback}/callback{QUERY}", own, by_own),
    ):
        client = tenant.add_client(redirect_uris=[address], **fields, **BOUND)
        # The suite needs a key in its configuration, although nothing is signed with it.
        keys = {"keys": [private_jwk(new_rsa_key(), "PS256", "unused")]}
        configuration[f"client{number}"] = {"client_id": client["client_id"], "scope": FAPI_SCOPES, "jwks": keys}
        configuration[f"mtls{number}"] = _connection(certified)
    configuration["mtls"]["ca"] = authority.pem
    return configuration


def fapi_bound_to_certificates(tenant: Tenant, callback: str) -> Configuration:
    """Configure the plan of FAPI 2.0 with `private_key_jwt` and tokens that are bound to certificates."""
    configuration = _fapi_server(tenant)
    for number, address in (("", f"{callback}/callback"), ("2", f"{callback}/callback{QUERY}")):
        client, keys = tenant.add_signing_client("PS256", redirect_uris=[address], **BOUND)
        configuration[f"client{number}"] = {"client_id": client["client_id"], "scope": FAPI_SCOPES, "jwks": keys}
        configuration[f"mtls{number}"] = _connection(self_signed())
    return configuration


def _fapi_server(tenant: Tenant) -> Configuration:
    """Return the addresses for clients with certificates."""
    return {
        "server": {"discoveryUrl": f"{tenant.issuer}/.well-known/openid-configuration"},
        "resource": {"resourceUrl": tenant.mutual_tls_endpoint("userinfo_endpoint")},
    }


def _connection(certified: Certified) -> dict[str, str]:
    return {"cert": certified.pem, "key": certified.key_pem}


STATIC = {"server_metadata": "discovery", "client_registration": "static_client"}
FAPI = {
    "client_auth_type": "private_key_jwt",
    "sender_constrain": "dpop",
    "fapi_profile": "plain_fapi",
    "openid": "openid_connect",
    "authorization_request_type": "simple",
}
PLANS = {
    "config": Plan("oidcc-config-certification-test-plan", "Config OP", {}, openid),
    "basic": Plan("oidcc-basic-certification-test-plan", "Basic OP", STATIC, openid),
    "basic-new-tenant": Plan(
        "oidcc-basic-certification-test-plan",
        "Basic OP, at a tenant created a second before",
        STATIC,
        openid,
        on_new_tenant=True,
    ),
    "form-post": Plan("oidcc-formpost-basic-certification-test-plan", "Form Post Basic OP", STATIC, openid),
    "rp-initiated-logout": Plan(
        "oidcc-rp-initiated-logout-certification-test-plan",
        "RP-Initiated Logout OP",
        {"client_registration": "static_client", "response_type": "code"},
        logout,
    ),
    "backchannel-logout": Plan(
        "oidcc-backchannel-rp-initiated-logout-certification-test-plan",
        "Back-Channel Logout OP",
        {"client_registration": "static_client", "response_type": "code"},
        backchannel_logout,
    ),
    "fapi2": Plan(
        "fapi2-security-profile-final-test-plan",
        "FAPI 2.0 Security Profile Final, `private_key_jwt` and DPoP",
        FAPI,
        fapi,
    ),
    "fapi2-mtls": Plan(
        "fapi2-security-profile-final-test-plan",
        "FAPI 2.0 Security Profile Final, mutual TLS",
        {**FAPI, "client_auth_type": "mtls", "sender_constrain": "mtls"},
        fapi_with_certificates,
    ),
    "fapi2-bound-to-certificates": Plan(
        "fapi2-security-profile-final-test-plan",
        "FAPI 2.0 Security Profile Final, `private_key_jwt` and certificate-bound tokens",
        {**FAPI, "sender_constrain": "mtls"},
        fapi_bound_to_certificates,
    ),
    "fapi2-message-signing": Plan(
        "fapi2-message-signing-final-test-plan",
        "FAPI 2.0 Message Signing Final, signed requests and JARM",
        {**FAPI, "fapi_request_method": "signed_non_repudiation", "fapi_response_mode": "jarm"},
        fapi_with_signed_messages,
    ),
}

"""The metadata of clients that present certificates (RFC 8705 sections 2.1.2 and 3.4)."""

import ipaddress
from collections.abc import Mapping
from contextlib import suppress

from userflow.accounts.models import Client
from userflow.sessions.certificate_authentication import (
    AUTHORITIES,
    SELF_SIGNED_TLS,
    SUBJECT_DN,
    SUBJECT_FIELDS,
    TLS,
    TLS_METHODS,
    SubjectInvalid,
    authorities_of,
    distinguished_name,
)
from userflow.sessions.client_certificates import takes_certificates
from userflow.sessions.client_keys import KeySetInvalid, read_key_set

BOUND = "tls_client_certificate_bound_access_tokens"
NO_CERTIFICATES = "No proxy passes certificates of clients on (CLIENT_CERTIFICATE_HEADER)."


def problems_of_mutual_tls(client: Client, before: Client) -> Mapping[str, list[str]]:
    """Return what is wrong with the fields about certificates, by field. `before` is the client as stored."""
    problems: dict[str, list[str]] = {}
    method = client.token_endpoint_auth_method
    if not takes_certificates():
        # A client from when there were some can be changed otherwise.
        if method in TLS_METHODS and method != before.token_endpoint_auth_method:
            problems["token_endpoint_auth_method"] = [NO_CERTIFICATES]
        if client.tls_client_certificate_bound_access_tokens and not before.tls_client_certificate_bound_access_tokens:
            problems[BOUND] = [NO_CERTIFICATES]
    if client.tls_client_certificate_bound_access_tokens and client.dpop_bound_access_tokens:
        problems[BOUND] = ["Tokens are bound to a certificate or by DPoP. Send false for one of the two."]
    if method == SELF_SIGNED_TLS and not client.jwks_uri and not _has_certificate(client):
        problems["token_endpoint_auth_method"] = [
            f"{SELF_SIGNED_TLS} needs the client's certificates: x5c in jwks, or jwks_uri."
        ]
    return problems | _of_subject(client)


def _has_certificate(client: Client) -> bool:
    with suppress(KeySetInvalid):
        return any(key.certificate for key in read_key_set(client.jwks))
    return False


def _of_subject(client: Client) -> dict[str, list[str]]:
    """Return what is wrong with the subject of `tls_client_auth`; clients with another method have none."""
    is_needed = client.token_endpoint_auth_method == TLS
    stored = [name for name in (*SUBJECT_FIELDS, AUTHORITIES) if getattr(client, name)]
    if not is_needed:
        return {name: [f"Send {TLS} as token_endpoint_auth_method, or leave this out."] for name in stored}
    problems = {}
    if len([name for name in stored if name != AUTHORITIES]) != 1:
        problems["token_endpoint_auth_method"] = [f"{TLS} needs one of: {', '.join(SUBJECT_FIELDS)}."]
    if AUTHORITIES not in stored:
        problems[AUTHORITIES] = [f"{TLS} needs the certificates (PEM) of the authorities that issue the client's."]
    for name in stored:
        try:
            _check(name, getattr(client, name))
        except SubjectInvalid as problem:
            problems[name] = [str(problem)]
    return problems


def _check(name: str, value: str) -> None:
    if name == AUTHORITIES:
        authorities_of(value)
    elif name == SUBJECT_DN:
        distinguished_name(value)
    elif name == "tls_client_auth_san_ip":
        try:
            ipaddress.ip_address(value)
        except ValueError as problem:
            raise SubjectInvalid("Send an IP address.") from problem

"""The metadata of a client (OpenID Connect Registration section 2, RFC 7591 section 2) and the rules between its fields."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings

from identity_platform.api.errors import ValidationFailed
from tenants.entering import lookup
from userflow.accounts.client_fields import CONFIDENTIAL
from userflow.accounts.grant_types import CLIENT_CREDENTIALS, DEVICE_CODE, GRANT_TYPES
from userflow.accounts.models import Client
from userflow.accounts.security_profiles import SecurityProfile, profile_of
from userflow.clients.mutual_tls import problems_of_mutual_tls
from userflow.clients.redirects import LOOPBACK, is_web_or_loopback, problem_of_redirect_uri
from userflow.sessions.certificate_authentication import AUTHORITIES, SUBJECT_FIELDS
from userflow.sessions.client_authentication import METHODS_OF_TYPE, PRIVATE_KEY_JWT
from userflow.sessions.client_keys import KeySetInvalid, problem_of_server_address, read_key_set

# Of a field that decides what authenticates the client: changing one is like writing a secret.
CREDENTIAL_FIELDS: Final = frozenset({"token_endpoint_auth_method", "jwks", "jwks_uri", *SUBJECT_FIELDS, AUTHORITIES})
# An entry more is like writing a secret too: it sends codes to another address, or tokens to another API or web page.
REACH_FIELDS: Final = frozenset({"redirect_uris", "audiences", "allowed_origins"})
# Turning one of these off lets a stolen token or a manipulated request through.
PROTECTION_FIELDS: Final = frozenset(
    {
        "require_par",
        "require_pkce",
        "require_nonce",
        "dpop_bound_access_tokens",
        "tls_client_certificate_bound_access_tokens",
    }
)
# RS256 is what most client libraries expect unless they are told otherwise (OpenID Connect Registration section 2).
ID_TOKEN_ALGORITHMS: Final = ("RS256", "ES256")
# An RS256 signature costs the server ten times as much as one by ES256: for APIs that verify RSA only.
ACCESS_TOKEN_ALGORITHMS: Final = ("ES256", "RS256")
LONGEST_MAX_AGE: Final = 365 * 86_400

_ORIGIN = re.compile(r"(?P<scheme>https?)://(?P<host>[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::(?P<port>[1-9][0-9]{0,4}))?")
_RESOURCE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]+")
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}

Problems = dict[str, list[str]]


def is_like_a_secret(client: Client, changes: Mapping[str, Any]) -> bool:
    """Return whether one of the changes gives as much as a new secret of the client would."""
    return (
        becomes_first_party(client, changes)
        or any(changes[name] != getattr(client, name) for name in CREDENTIAL_FIELDS & changes.keys())
        or any(getattr(client, name) and not changes[name] for name in PROTECTION_FIELDS & changes.keys())
        # Also to another profile: it may demand less.
        or (
            client.security_profile
            and changes.get("security_profile", client.security_profile) != client.security_profile
        )
        # A stolen refresh token then lasts unnoticed.
        or (changes.get("refresh_token_rotation") is False and client.refresh_token_rotation is not False)
        # Passwords of users may pass through it.
        or (bool(changes.get("direct_sign_in")) and not client.direct_sign_in)
        or any(set(changes[name]) - set(getattr(client, name)) for name in REACH_FIELDS & changes.keys())
        # Tokens then go to any device whose code a user is persuaded to enter.
        or DEVICE_CODE in set(changes.get("grant_types", ())) - set(client.grant_types)
    )


def becomes_first_party(client: Client, changes: Mapping[str, Any]) -> bool:
    """Return whether the changes make a first-party client of one that is not."""
    return bool(changes.get("first_party")) and not client.first_party


def needs_consent(before: Client, client: Client) -> bool:
    """Return whether the client, which was first-party before, needs the consent of its users from now on."""
    return before.first_party and not client.first_party


def ends_direct_sign_in(before: Client, client: Client) -> bool:
    """Return whether the client could sign users in by JSON before and cannot any more."""
    return signs_in_directly(before) and not signs_in_directly(client)


def signs_in_directly(client: Client) -> bool:
    """Return whether the client may sign users in by JSON."""
    return client.first_party and client.direct_sign_in


def gets_profile(client: Client, changes: Mapping[str, Any]) -> bool:
    """Return whether the changes give the client a security profile that it does not have."""
    return bool(changes.get("security_profile")) and changes["security_profile"] != client.security_profile


def with_profile(client: Client, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes with the values that the client's security profile demands where they have none.

    Null and empty stand for the default, which is then that of the profile. A field that is not among the changes is set when
    the profile is; later it has the value.
    """
    profile_name = changes.get("security_profile", client.security_profile)
    if client.type != CONFIDENTIAL:
        return dict(changes)

    def value_of(name: str) -> object:
        return changes.get(name, getattr(client, name)) if name else None

    profile_values = {
        name: demand.value
        for name, demand in profile_of(profile_name).settings.items()
        if not demand.is_met(value_of(name), alternative=value_of(demand.unless))
        and (changes[name] in (None, "") if name in changes else profile_name != client.security_profile)
    }
    return {**changes, **profile_values}


def missing_settings(client: Client) -> Problems:
    """Return what the security profile of the client demands and its settings do not have, by field."""
    profile = profile_of(client.security_profile)
    if client.security_profile and client.type != CONFIDENTIAL:
        return {"type": [f"{client.security_profile} is for confidential clients only. Create one of that type."]}
    problems: Problems = {
        name: [demand.problem]
        for name, demand in profile.settings.items()
        if not demand.is_met(getattr(client, name), alternative=demand.unless and getattr(client, demand.unless))
    }
    if profile.web_redirects_only:
        problem = f"{client.security_profile} allows https only, and http on localhost for native applications."
        problems |= {
            f"redirect_uris[{n}]": [problem]
            for n, uri in enumerate(client.redirect_uris)
            if not is_web_or_loopback(uri)
        }
    if profile.signed_messages_only and DEVICE_CODE in client.grant_types:
        problems["grant_types"] = [f"{client.security_profile} allows no requests of devices, which are not signed."]
    return problems | _of_algorithms(client, profile)


def _of_algorithms(client: Client, profile: SecurityProfile) -> Problems:
    """Return which registered keys sign with no algorithm that the profile allows. Others are checked when they are used."""
    with suppress(KeySetInvalid):
        keys = read_key_set(client.jwks) if client.jwks else ()
        rejected_keys = [n for n, key in enumerate(keys) if not any(map(profile.allows, key.algorithms))]
        if rejected_keys:
            problem = f"{client.security_profile} allows keys for {', '.join(profile.algorithms)} only."
            return {"jwks": [f"keys[{n}]: {problem}" for n in rejected_keys]}
    return {}


def check_metadata(client: Client, before: Client | None = None) -> None:
    """Raise ValidationFailed for metadata that the client may not have; drop repeated entries of lists.

    `before` is the client as stored: redirect URIs that it holds were allowed when they were registered.
    """
    for name in ("redirect_uris", "post_logout_redirect_uris", "grant_types", "audiences", "allowed_origins"):
        setattr(client, name, list(dict.fromkeys(getattr(client, name))))
    stored = before or Client()
    problems: Problems = {
        **_of_entries("redirect_uris", client.redirect_uris, problem_of_redirect_uri, stored.redirect_uris),
        **_of_entries(
            "post_logout_redirect_uris",
            client.post_logout_redirect_uris,
            problem_of_redirect_uri,
            stored.post_logout_redirect_uris,
        ),
        **_of_entries("audiences", client.audiences, _problem_of_audience),
        **_of_entries("allowed_origins", client.allowed_origins, problem_of_origin),
        **_of_grant_types(client),
        **_of_credentials(client),
        **problems_of_mutual_tls(client, stored),
        **_of_pages(client),
        **missing_settings(client),
    }
    if client.type != CONFIDENTIAL and not client.require_pkce:
        problems["require_pkce"] = ["A public client always needs PKCE. Leave it true."]
    if not client.require_nonce and (client.type != CONFIDENTIAL or client.require_pkce):
        problems.setdefault(
            "require_nonce", ["Only a confidential client with require_pkce: false can have false. Send true."]
        )
    bound = client.dpop_bound_access_tokens or client.tls_client_certificate_bound_access_tokens
    if client.type != CONFIDENTIAL and not bound and client.refresh_token_rotation is False:
        problems["refresh_token_rotation"] = [
            "A public client without DPoP always gets new refresh tokens. Leave it out."
        ]
    if client.backchannel_logout_uri and (says := problem_of_server_address(client.backchannel_logout_uri)):
        problems["backchannel_logout_uri"] = [says]
    if client.access_token_seconds is not None and client.access_token_seconds != stored.access_token_seconds:
        longest = lookup.find(client.tenant_id).effective["access_token_seconds"]
        if client.access_token_seconds > longest:
            problems["access_token_seconds"] = [f"Send at most {longest}, the setting of the tenant."]
    if problems:
        raise ValidationFailed(details=problems)


def _of_entries(
    field: str, entries: Iterable[str], problem_of: Callable[[str], str | None], stored_entries: Iterable[str] = ()
) -> Problems:
    known = set(stored_entries)
    return {
        f"{field}[{n}]": [says]
        for n, entry in enumerate(entries)
        if entry not in known and (says := problem_of(entry)) is not None
    }


def _of_grant_types(client: Client) -> Problems:
    problems = _of_entries(
        "grant_types", client.grant_types, lambda name: None if name in GRANT_TYPES else "This grant type is unknown."
    )
    if client.type != CONFIDENTIAL and CLIENT_CREDENTIALS in client.grant_types:
        problems["grant_types"] = ["Only a confidential client can have client_credentials."]
    return problems


def _of_credentials(client: Client) -> Problems:
    problems: Problems = {}
    method, allowed = client.token_endpoint_auth_method, METHODS_OF_TYPE[client.type]
    if method and method not in allowed:
        problems["token_endpoint_auth_method"] = [f"A {client.type} client has one of: {', '.join(allowed)}."]
    if client.jwks and client.jwks_uri:
        problems["jwks_uri"] = ["Send jwks or jwks_uri, not both."]
    elif client.jwks_uri and (says := problem_of_server_address(client.jwks_uri)):
        problems["jwks_uri"] = [says]
    elif method == PRIVATE_KEY_JWT and not client.jwks and not client.jwks_uri:
        problems["token_endpoint_auth_method"] = ["private_key_jwt needs the client's public keys: jwks or jwks_uri."]
    if client.jwks:
        try:
            read_key_set(client.jwks)
        except KeySetInvalid as problem:
            problems["jwks"] = [str(problem)]
    return problems


def _of_pages(client: Client) -> Problems:
    problems: Problems = {}
    for name in ("logo_uri", "client_uri", "policy_uri", "tos_uri"):
        uri = getattr(client, name)
        is_web = uri.startswith("https://") and "@" not in urlsplit(uri).netloc and problem_of_redirect_uri(uri) is None
        if uri and not is_web:
            problems[name] = ["Send an absolute https:// address."]
    return problems


def _problem_of_audience(audience: str) -> str | None:
    """RFC 8707 section 2: an absolute URI without a fragment; or the audience of the platform's own API."""
    if audience == settings.TOKEN_AUDIENCE or _RESOURCE.fullmatch(audience):
        return None
    return f"Send an absolute URI without a fragment, or {settings.TOKEN_AUDIENCE} for this platform's API."


def problem_of_origin(origin: str) -> str | None:
    """Return why a client may not have this origin (RFC 6454 section 6.2, as browsers send it), or None."""
    parts = _ORIGIN.fullmatch(origin)
    if parts is None or int(parts["port"] or 1) > 65535 or parts["port"] == _DEFAULT_PORTS[parts["scheme"]]:
        return "Send an origin as browsers do: https://app.example, in lower case, without a path or a default port."
    if parts["scheme"] == "http" and parts["host"].strip("[]") not in LOOPBACK:
        return "Plain http is allowed for localhost only. Use https."
    return None

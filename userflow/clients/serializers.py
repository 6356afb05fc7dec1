"""Serializers of clients."""

from rest_framework import serializers

from identity_platform.api.fields import Boolean, Choice, Integer, Items, QueryBoolean, Text, fields_of
from identity_platform.api.json_field import JsonObject
from identity_platform.api.pagination import PageQuery, PaginationOut
from identity_platform.authorities import LONGEST_PEM
from tenants.settings.setting_fields import Certificates
from userflow.accounts.client_fields import CONFIDENTIAL, PUBLIC
from userflow.accounts.grant_types import GRANT_TYPES, grant_types_in_force, listed, rotates_refresh_tokens
from userflow.accounts.models import Client
from userflow.accounts.security_profiles import SECURITY_PROFILES
from userflow.clients.registration import ACCESS_TOKEN_ALGORITHMS, ID_TOKEN_ALGORITHMS, LONGEST_MAX_AGE
from userflow.sessions.certificate_authentication import AUTHORITIES, SUBJECT_FIELDS
from userflow.sessions.client_authentication import KEY_METHODS, METHODS, NONE
from userflow.sessions.client_keys import LONGEST_SET

MOST_ENTRIES = 100
LONGEST_URI = 2048
# Stored as empty; null in requests and responses.
_NULL_IF_EMPTY = (
    "token_endpoint_auth_method",
    "jwks",
    "jwks_uri",
    "security_profile",
    "backchannel_logout_uri",
    "logo_uri",
    "client_uri",
    "policy_uri",
    "tos_uri",
    *SUBJECT_FIELDS,
    AUTHORITIES,
)


def record(client: Client) -> dict[str, object]:
    """Return a client as responses show it, without its secret."""
    null_if_empty = {name: getattr(client, name) or None for name in _NULL_IF_EMPTY}
    method = NONE if client.type == PUBLIC else client.token_endpoint_auth_method or None
    return fields_of(
        OAuthClientOut,
        client,
        client_id=client.pk,
        status="Active" if client.active else "Inactive",
        grant_types=grant_types_in_force(client.grant_types, type_=client.type, scopes=client.scopes),
        refresh_token_rotation=rotates_refresh_tokens(
            client.refresh_token_rotation,
            type_=client.type,
            bound=client.dpop_bound_access_tokens or client.tls_client_certificate_bound_access_tokens,
            by_key=method in KEY_METHODS,
        ),
        **{**null_if_empty, "token_endpoint_auth_method": method},
    )


def _entries(longest: int, help_text: str = "") -> Items:
    return Items(Text(max_length=longest), most=MOST_ENTRIES, required=False, help_text=help_text)


def _subject(longest: int, help_text: str) -> Text:
    return Text(max_length=longest, required=False, allow_null=True, help_text=help_text)


def _page(help_text: str) -> Text:
    return Text(max_length=LONGEST_URI, required=False, allow_null=True, help_text=help_text)


class ClientChanges(serializers.Serializer[object]):
    name = Text(max_length=255, required=False, trim=True)
    type = Choice([PUBLIC, CONFIDENTIAL], required=False, help_text="Must be the current type; it cannot change.")
    active = Boolean(required=False)
    tags = _entries(64)
    scopes = _entries(128)
    redirect_uris = _entries(LONGEST_URI)
    project_id = Text(max_length=64, required=False, allow_null=True)
    owner_id = Text(max_length=64, required=False, allow_null=True)
    self_registration = Boolean(required=False)
    post_logout_redirect_uris = _entries(LONGEST_URI)
    grant_types = Items(
        Choice(GRANT_TYPES),
        most=len(GRANT_TYPES),
        required=False,
        help_text=f"An empty list: the default of the type. {listed()}.",
    )
    token_endpoint_auth_method = Choice(
        METHODS,
        required=False,
        allow_null=True,
        help_text="null: none for a public client, its secret in either form for a confidential one.",
    )
    jwks = JsonObject(
        max_bytes=LONGEST_SET,
        max_depth=4,
        required=False,
        allow_null=True,
        help_text="Public keys for private_key_jwt (RFC 7517 section 5); null: none.",
    )
    jwks_uri = _page("Address of the public keys, instead of jwks; null: none.")
    id_token_signed_response_alg = Choice(ID_TOKEN_ALGORITHMS, required=False, help_text="Default: RS256.")
    access_token_signed_response_alg = Choice(
        ACCESS_TOKEN_ALGORITHMS, required=False, help_text="Default: ES256. RS256 is for APIs that verify RSA only."
    )
    audiences = _entries(LONGEST_URI, "Resource identifiers that the client may ask for (RFC 8707).")
    allowed_origins = _entries(255, "Origins of web pages that may call the tenant's OpenID endpoints from a browser.")
    require_par = Boolean(required=False)
    require_pkce = Boolean(
        required=False, help_text="false: confidential clients only; they then send `nonce` with `openid`."
    )
    require_nonce = Boolean(
        required=False, help_text="false: for libraries that can send neither, which allows code injection (RFC 9700)."
    )
    dpop_bound_access_tokens = Boolean(required=False)
    tls_client_certificate_bound_access_tokens = Boolean(required=False)
    tls_client_auth_subject_dn = _subject(1024, "Subject for tls_client_auth (RFC 4514).")
    tls_client_auth_san_dns = _subject(255, "Or an alternative name: DNS.")
    tls_client_auth_san_uri = _subject(1024, "Or a URI.")
    tls_client_auth_san_ip = _subject(45, "Or an IP address.")
    tls_client_auth_san_email = _subject(320, "Or an e-mail address.")
    tls_client_auth_authorities = Certificates(
        max_length=LONGEST_PEM,
        required=False,
        allow_null=True,
        help_text="Certificates (PEM) of its authorities.",
    )
    refresh_token_rotation = Boolean(
        required=False,
        allow_null=True,
        help_text="Whether a refresh replaces the refresh token; null: unless the client proves a key. Always true for a "
        "public client without DPoP.",
    )
    security_profile = Choice(
        SECURITY_PROFILES,
        required=False,
        allow_null=True,
        help_text="fapi2 sets and holds what FAPI 2.0 demands of the other fields, fapi2_message_signing also signed requests "
        "and responses; null: none.",
    )
    first_party = Boolean(required=False)
    direct_sign_in = Boolean(
        required=False,
        help_text="Whether a first-party client may sign users in by JSON (/uflow/auth/enduser/login). Default: true.",
    )
    backchannel_logout_uri = _page("Where logout tokens are sent; null: none.")
    access_token_seconds = Integer(required=False, allow_null=True, min_value=60, max_value=86_400)
    default_max_age = Integer(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=LONGEST_MAX_AGE,
    )
    logo_uri = _page("Logo of the application, for applications: no page shows it; null: none.")
    client_uri = _page("Home page of the application, to which the consent page links; null: none.")
    policy_uri = _page("Privacy policy of the application; null: none.")
    tos_uri = _page("Terms of service of the application; null: none.")

    def validate(self, attrs: dict[str, object]) -> dict[str, object]:
        empty = {name: {} if name == "jwks" else "" for name in _NULL_IF_EMPTY if attrs.get(name, "") is None}
        return {**attrs, **empty}

    def validate_tags(self, tags: list[str]) -> list[str]:
        return list(dict.fromkeys(tags))


class ClientIn(ClientChanges):
    name = Text(max_length=255, trim=True)
    type = Choice(
        [PUBLIC, CONFIDENTIAL],
        required=False,
        default=PUBLIC,
        help_text="`confidential` has a secret; `public` runs where a secret cannot be kept. It cannot change.",
    )


class ClientListQuery(PageQuery):
    active = QueryBoolean(required=False, help_text="Only active or only inactive clients; both if absent.")
    name = Text(max_length=255, required=False, help_text="Part of the name, case-insensitive.")
    tags = Text(max_length=1024, required=False, help_text="Comma-separated. Clients that have all of them.")

    def validate_tags(self, value: str) -> list[str]:
        return [tag.strip() for tag in value.split(",") if tag.strip()]


class ClientSecretIn(serializers.Serializer[object]):
    overlap_seconds = Integer(
        required=False,
        min_value=0,
        max_value=30 * 86400,
        help_text="Seconds for which the current secret stays valid. Default: that of the platform.",
    )


class OAuthClientOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    client_id = serializers.UUIDField(help_text="The same as id.")
    tenant_id = serializers.UUIDField()
    name = serializers.CharField()
    type = serializers.ChoiceField([PUBLIC, CONFIDENTIAL], help_text="`confidential` has a secret, `public` has none.")
    active = serializers.BooleanField()
    status = serializers.ChoiceField(["Active", "Inactive"], help_text="The same as `active`, in words.")
    tags = serializers.ListField(child=serializers.CharField())
    scopes = serializers.ListField(child=serializers.CharField())
    project_id = serializers.CharField(allow_null=True)
    owner_id = serializers.CharField(allow_null=True)
    self_registration = serializers.BooleanField()
    redirect_uris = serializers.ListField(child=serializers.CharField())
    post_logout_redirect_uris = serializers.ListField(child=serializers.CharField())
    grant_types = serializers.ListField(
        child=serializers.ChoiceField(GRANT_TYPES), help_text="Those in force: the default of the type if none is set."
    )
    token_endpoint_auth_method = serializers.ChoiceField(METHODS, allow_null=True)
    jwks = serializers.DictField(allow_null=True)
    jwks_uri = serializers.CharField(allow_null=True)
    id_token_signed_response_alg = serializers.ChoiceField(ID_TOKEN_ALGORITHMS)
    access_token_signed_response_alg = serializers.ChoiceField(ACCESS_TOKEN_ALGORITHMS)
    audiences = serializers.ListField(child=serializers.CharField())
    allowed_origins = serializers.ListField(child=serializers.CharField())
    require_par = serializers.BooleanField()
    require_pkce = serializers.BooleanField()
    require_nonce = serializers.BooleanField()
    dpop_bound_access_tokens = serializers.BooleanField()
    tls_client_certificate_bound_access_tokens = serializers.BooleanField()
    tls_client_auth_subject_dn = serializers.CharField(allow_null=True)
    tls_client_auth_san_dns = serializers.CharField(allow_null=True)
    tls_client_auth_san_uri = serializers.CharField(allow_null=True)
    tls_client_auth_san_ip = serializers.CharField(allow_null=True)
    tls_client_auth_san_email = serializers.CharField(allow_null=True)
    tls_client_auth_authorities = serializers.CharField(allow_null=True)
    refresh_token_rotation = serializers.BooleanField(
        help_text="What is in force: the default of its kind if none is set."
    )
    security_profile = serializers.ChoiceField(SECURITY_PROFILES, allow_null=True)
    first_party = serializers.BooleanField()
    direct_sign_in = serializers.BooleanField()
    backchannel_logout_uri = serializers.CharField(allow_null=True)
    access_token_seconds = serializers.IntegerField(allow_null=True)
    default_max_age = serializers.IntegerField(allow_null=True)
    logo_uri = serializers.CharField(allow_null=True)
    client_uri = serializers.CharField(allow_null=True)
    policy_uri = serializers.CharField(allow_null=True)
    tos_uri = serializers.CharField(allow_null=True)
    is_default = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)


class NewClientOut(OAuthClientOut):
    client_secret = serializers.CharField(required=False, help_text="Confidential clients; shown only once.")


class RotatedClientOut(NewClientOut):
    previous_secret_expires_at = serializers.DateTimeField(allow_null=True)


class ClientListOut(serializers.Serializer[object]):
    clients = OAuthClientOut(many=True)
    pagination = PaginationOut()

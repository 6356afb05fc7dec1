"""The columns of a client, in the global database and in its tenant's."""

import uuid
from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    StringsField = models.JSONField[list[str], list[str]]

PUBLIC, CONFIDENTIAL = "public", "confidential"


class ClientFields(models.Model):
    """What sign-in, tokens, introspection, hosted pages and CORS read of a client."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=255)
    type = models.CharField(max_length=16, choices=[(PUBLIC, PUBLIC), (CONFIDENTIAL, CONFIDENTIAL)], default=PUBLIC)
    active = models.BooleanField(default=True)
    is_default = models.BooleanField(default=False)
    tags: "StringsField" = models.JSONField(default=list, blank=True)
    scopes: "StringsField" = models.JSONField(default=list, blank=True)
    redirect_uris: "StringsField" = models.JSONField(default=list, blank=True)
    project_id = models.CharField(max_length=64, null=True, blank=True)
    owner_id = models.CharField(max_length=64, null=True, blank=True)
    self_registration = models.BooleanField(default=False)
    # SHA-256 of 256 random bits; the one before stays valid until `previous_secret_until`.
    secret_digest = models.BinaryField(null=True, editable=False)
    previous_secret_digest = models.BinaryField(null=True, editable=False)
    previous_secret_until = models.DateTimeField(null=True, editable=False)
    # Metadata of OpenID Connect Registration section 2 and RFC 7591 section 2. Empty `token_endpoint_auth_method`: by type,
    # none or the secret in either form.
    post_logout_redirect_uris: "StringsField" = models.JSONField(default=list, db_default=[], blank=True)
    grant_types: "StringsField" = models.JSONField(default=list, db_default=[], blank=True)
    token_endpoint_auth_method = models.CharField(max_length=32, blank=True, default="", db_default="")
    jwks: "models.JSONField[dict[str, object], dict[str, object]]" = models.JSONField(
        default=dict, db_default={}, blank=True
    )
    jwks_uri = models.CharField(max_length=2048, blank=True, default="", db_default="")
    id_token_signed_response_alg = models.CharField(max_length=8, default="RS256", db_default="RS256")
    access_token_signed_response_alg = models.CharField(max_length=8, default="ES256", db_default="ES256")
    backchannel_logout_uri = models.CharField(max_length=2048, blank=True, default="", db_default="")
    default_max_age = models.PositiveIntegerField(null=True, blank=True)
    logo_uri = models.CharField(max_length=2048, blank=True, default="", db_default="")
    client_uri = models.CharField(max_length=2048, blank=True, default="", db_default="")
    policy_uri = models.CharField(max_length=2048, blank=True, default="", db_default="")
    tos_uri = models.CharField(max_length=2048, blank=True, default="", db_default="")
    # Resource identifiers that the client may ask for (RFC 8707).
    audiences: "StringsField" = models.JSONField(default=list, db_default=[], blank=True)
    # Origins of browsers that may call this tenant's OpenID endpoints for the client.
    allowed_origins: "StringsField" = models.JSONField(default=list, db_default=[], blank=True)
    require_par = models.BooleanField(default=False, db_default=False)
    # Always true for a public client.
    require_pkce = models.BooleanField(default=True, db_default=True)
    # Whether requests for `openid` without PKCE need `nonce`.
    require_nonce = models.BooleanField(default=True, db_default=True)
    dpop_bound_access_tokens = models.BooleanField(default=False, db_default=False)
    # Mutual TLS (RFC 8705). One of the five names is in the certificate of `tls_client_auth`; the authorities (PEM) issue it.
    tls_client_certificate_bound_access_tokens = models.BooleanField(default=False, db_default=False)
    tls_client_auth_subject_dn = models.CharField(max_length=1024, blank=True, default="", db_default="")
    tls_client_auth_san_dns = models.CharField(max_length=255, blank=True, default="", db_default="")
    tls_client_auth_san_uri = models.CharField(max_length=1024, blank=True, default="", db_default="")
    tls_client_auth_san_ip = models.CharField(max_length=45, blank=True, default="", db_default="")
    tls_client_auth_san_email = models.CharField(max_length=320, blank=True, default="", db_default="")
    tls_client_auth_authorities = models.TextField(blank=True, default="", db_default="")
    # Null: the default of its kind (`grant_types.rotates_refresh_tokens`).
    refresh_token_rotation = models.BooleanField(null=True, blank=True)
    # A name of `security_profiles.PROFILES`; empty for none.
    security_profile = models.CharField(max_length=32, blank=True, default="", db_default="")
    # Users are not asked for consent.
    first_party = models.BooleanField(default=False, db_default=False)
    # A first-party client may sign users in by JSON (`signs_in_directly`); the others by OpenID Connect only.
    direct_sign_in = models.BooleanField(default=True, db_default=True)
    # Null: the tenant's setting.
    access_token_seconds = models.PositiveIntegerField(null=True, blank=True)
    # A claim of the client's own tokens, raised when it is deactivated: old tokens stay invalid when it is activated again.
    generation = models.PositiveIntegerField(default=1, db_default=1, editable=False)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name

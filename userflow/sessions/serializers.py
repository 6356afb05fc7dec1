"""Serializers of the OAuth endpoints."""

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from identity_platform.api.fields import Text
from userflow.sessions.client_assertions import LONGEST as LONGEST_ASSERTION
from userflow.sessions.client_assertions import TYPE as ASSERTION_TYPE


class ClientProof(serializers.Serializer[object]):
    """RFC 6749 section 2.3.1, second form, and RFC 7521 section 4.2; another way is HTTP Basic."""

    client_id = Text(max_length=255, required=False, help_text="Id of the client, if not sent by HTTP Basic.")
    client_secret = Text(max_length=255, required=False)
    client_assertion_type = Text(max_length=255, required=False, help_text=ASSERTION_TYPE)
    client_assertion = Text(
        max_length=LONGEST_ASSERTION, required=False, help_text="Signed JWT of the client (private_key_jwt, RFC 7523)."
    )


class TokenIn(ClientProof):
    grant_type = Text(max_length=64, help_text="client_credentials or refresh_token")
    refresh_token = Text(
        max_length=4096,
        required=False,
        help_text="Only for the grant refresh_token. Use the one of the response from then on.",
    )
    scope = Text(max_length=4096, required=False, help_text="Separated by blanks; a subset of the client's scopes.")


class TokenOut(serializers.Serializer[object]):
    access_token = serializers.CharField()
    refresh_token = serializers.CharField(required=False)
    token_type = serializers.CharField()
    expires_in = serializers.IntegerField()
    scope = serializers.CharField(
        required=False, help_text="Granted scopes, separated by spaces, if they can differ from the request."
    )


class PresentedToken(ClientProof):
    token = Text(max_length=8192)
    token_type_hint = Text(max_length=64, required=False, help_text="Accepted and ignored.")


class RevokedOut(serializers.Serializer[object]):
    """An empty object."""


@extend_schema_field({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
class Audience(serializers.JSONField):
    """The claim `aud` (RFC 7519 section 4.1.3)."""


class IntrospectionOut(serializers.Serializer[object]):
    active = serializers.BooleanField(help_text="Whether the token is valid. If not, there are no other fields.")
    scope = serializers.CharField(required=False)
    client_id = serializers.UUIDField(required=False)
    username = serializers.CharField(required=False, help_text="E-mail address or username of the user.")
    token_type = serializers.CharField(required=False)
    exp = serializers.IntegerField(required=False)
    iat = serializers.IntegerField(required=False)
    nbf = serializers.IntegerField(required=False)
    sub = serializers.CharField(required=False)
    aud = Audience(required=False, help_text="Audience of the token, or a list of several.")
    cnf = serializers.DictField(required=False, help_text="The key that the token is bound to (RFC 9449 section 6.2).")
    iss = serializers.CharField(required=False)
    jti = serializers.CharField(required=False)
    acr = serializers.CharField(required=False, help_text="aal1 or aal2 (RFC 9470 section 6.2).")
    auth_time = serializers.IntegerField(
        required=False, help_text="When the user was last verified, in seconds since 1970."
    )
    kind = serializers.CharField(required=False)
    tenant_id = serializers.UUIDField(required=False)
    sid = serializers.UUIDField(required=False)
    roles = serializers.ListField(child=serializers.CharField(), required=False)
    groups = serializers.ListField(child=serializers.CharField(), required=False)
    permissions = serializers.ListField(child=serializers.CharField(), required=False)


class JwksOut(serializers.Serializer[object]):
    keys = serializers.ListField(child=serializers.DictField())


class ServerMetadataOut(serializers.Serializer[object]):
    """RFC 8414 section 2."""

    issuer = serializers.CharField()
    token_endpoint = serializers.CharField()
    revocation_endpoint = serializers.CharField()
    introspection_endpoint = serializers.CharField()
    jwks_uri = serializers.CharField()
    service_documentation = serializers.CharField()
    response_types_supported = serializers.ListField(child=serializers.CharField())
    grant_types_supported = serializers.ListField(child=serializers.CharField())
    scopes_supported = serializers.ListField(child=serializers.CharField())
    token_endpoint_auth_methods_supported = serializers.ListField(child=serializers.CharField())
    revocation_endpoint_auth_methods_supported = serializers.ListField(child=serializers.CharField())
    introspection_endpoint_auth_methods_supported = serializers.ListField(child=serializers.CharField())
    token_endpoint_auth_signing_alg_values_supported = serializers.ListField(child=serializers.CharField())
    revocation_endpoint_auth_signing_alg_values_supported = serializers.ListField(child=serializers.CharField())
    introspection_endpoint_auth_signing_alg_values_supported = serializers.ListField(child=serializers.CharField())

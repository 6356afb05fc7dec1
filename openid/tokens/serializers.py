"""Bodies of a tenant's token endpoint."""

from rest_framework import serializers

from identity_platform.api.fields import Text
from userflow.sessions.serializers import ClientProof


class OpenIDTokenIn(ClientProof):
    """RFC 6749 sections 4.1.3, 4.4.2 and 6, RFC 7636 section 4.5, RFC 8628 section 3.4, RFC 8707 section 2.2."""

    grant_type = Text(max_length=64, help_text="One of `grant_types_supported` of the issuer's metadata.")
    code = Text(max_length=4096, required=False)
    redirect_uri = Text(max_length=2048, required=False, help_text="That of the authorization request.")
    code_verifier = Text(max_length=128, required=False, help_text="The secret of code_challenge (PKCE).")
    refresh_token = Text(max_length=4096, required=False)
    device_code = Text(max_length=4096, required=False, help_text="That of the device authorization response.")
    scope = Text(max_length=4096, required=False, help_text="Separated by blanks; no more than was granted.")
    resource = serializers.ListField(
        child=Text(max_length=2048), required=False, help_text="Audiences of the access token; may be repeated."
    )


class OpenIDTokenOut(serializers.Serializer[object]):
    """RFC 6749 section 5.1, OpenID Connect Core section 3.1.3.3."""

    access_token = serializers.CharField()
    token_type = serializers.CharField(help_text="Bearer, or DPoP for tokens that are bound to a key (RFC 9449).")
    expires_in = serializers.IntegerField()
    refresh_token = serializers.CharField(required=False)
    id_token = serializers.CharField(
        required=False, help_text="With the scope `openid`; at a refresh without claims about the user."
    )
    scope = serializers.CharField(required=False)

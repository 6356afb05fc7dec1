"""The documents about a tenant's issuer."""

from rest_framework import serializers


def _list() -> serializers.ListField:
    return serializers.ListField(child=serializers.CharField())


class ProviderMetadataOut(serializers.Serializer[object]):
    """OpenID Connect Discovery section 3, RFC 8414 section 2, RFC 9126 section 5, RFC 9207 section 3."""

    issuer = serializers.CharField()
    authorization_endpoint = serializers.CharField()
    token_endpoint = serializers.CharField()
    pushed_authorization_request_endpoint = serializers.CharField()
    device_authorization_endpoint = serializers.CharField()
    userinfo_endpoint = serializers.CharField()
    end_session_endpoint = serializers.CharField()
    backchannel_logout_supported = serializers.BooleanField()
    backchannel_logout_session_supported = serializers.BooleanField()
    revocation_endpoint = serializers.CharField()
    introspection_endpoint = serializers.CharField()
    jwks_uri = serializers.CharField()
    service_documentation = serializers.CharField()
    response_types_supported = _list()
    response_modes_supported = _list()
    grant_types_supported = _list()
    subject_types_supported = _list()
    id_token_signing_alg_values_supported = _list()
    scopes_supported = _list()
    claims_supported = _list()
    acr_values_supported = _list()
    prompt_values_supported = _list()
    ui_locales_supported = _list()
    code_challenge_methods_supported = _list()
    token_endpoint_auth_methods_supported = _list()
    token_endpoint_auth_signing_alg_values_supported = _list()
    dpop_signing_alg_values_supported = _list()
    revocation_endpoint_auth_methods_supported = _list()
    revocation_endpoint_auth_signing_alg_values_supported = _list()
    introspection_endpoint_auth_methods_supported = _list()
    introspection_endpoint_auth_signing_alg_values_supported = _list()
    authorization_response_iss_parameter_supported = serializers.BooleanField()
    claims_parameter_supported = serializers.BooleanField()
    request_parameter_supported = serializers.BooleanField()
    request_uri_parameter_supported = serializers.BooleanField()
    require_pushed_authorization_requests = serializers.BooleanField()

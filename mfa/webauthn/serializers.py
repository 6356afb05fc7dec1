from rest_framework import serializers

from identity_platform.api.fields import EmailAddress, Identifier, Text
from mfa.serializers import AdminEnrollmentIn, EnrollmentIn, SuccessOut
from mfa.totp.serializers import COMPLETES, LoginTokens
from userflow.accounts.serializers import AdminEmailIn
from userflow.signin.proof_fields import ProofFields, PublicKeyCredential


class AdminPasskeyIn(AdminEnrollmentIn, ProofFields):
    """The fields of a proof are for an access token; `credential` is the new passkey, `response` the use of another one."""

    credential = PublicKeyCredential(help_text="Result of navigator.credentials.create().")
    mfa_token = Text(max_length=256, required=False, help_text=COMPLETES)


class AdminPasskeyAssertionIn(AdminEmailIn):
    response = PublicKeyCredential()
    mfa_token = Text(max_length=128, required=False, help_text="Ticket of a login that waits for its second step.")


class EndUserNamedIn(serializers.Serializer[object]):
    email = EmailAddress()
    tenant_id = Identifier()


def _client_secret() -> Text:
    return Text(max_length=255, required=False, help_text="Of a confidential client that this signs the user in to.")


class PasskeyRegistrationIn(EndUserNamedIn, EnrollmentIn):
    """A request that enrolls a factor."""


class EndUserCredentialIn(PasskeyRegistrationIn, ProofFields):
    """The fields of a proof are for an access token; `credential` is the new passkey, `response` the use of another one."""

    credential = PublicKeyCredential(help_text="Result of navigator.credentials.create().")


class PasskeySignUpIn(EndUserCredentialIn):
    """The fields of a proof are for an access token; `credential` is the new passkey."""

    client_secret = _client_secret()


class PasskeyIn(EndUserCredentialIn):
    """The fields of a proof are for an access token; `credential` is the new passkey, `response` the use of another one."""

    mfa_token = Text(max_length=256, required=False, help_text=COMPLETES)


class PasskeyAuthenticationIn(serializers.Serializer[object]):
    email = EmailAddress(required=False, help_text="E-mail address of the user. Without it a passkey sign-in begins.")
    tenant_id = Identifier()
    client_id = Identifier(required=False, help_text="Client to sign in to, for a passkey sign-in.")


class PasskeyAssertionIn(serializers.Serializer[object]):
    email = EmailAddress(required=False, help_text="E-mail address of the user; optional in a passkey sign-in.")
    tenant_id = Identifier()
    response = PublicKeyCredential()
    client_secret = _client_secret()
    mfa_token = Text(max_length=128, required=False, help_text="Ticket of a login that waits for its second step.")


class RelyingPartyOut(serializers.Serializer[object]):
    id = serializers.CharField(help_text="RP ID: the domain of the passkeys.")
    name = serializers.CharField(help_text="Name of the relying party.")


class PasskeyUserOut(serializers.Serializer[object]):
    id = serializers.CharField(help_text="User handle, base64url.")
    name = serializers.CharField(help_text="E-mail address or username.")
    displayName = serializers.CharField()


class PasskeyParameterOut(serializers.Serializer[object]):
    type = serializers.CharField(help_text="Always public-key.")
    alg = serializers.IntegerField()


class PasskeyDescriptorOut(serializers.Serializer[object]):
    id = serializers.CharField(help_text="Credential id, base64url.")
    type = serializers.CharField(help_text="Always public-key.")
    transports = serializers.ListField(child=serializers.CharField(), required=False)


class AuthenticatorSelectionOut(serializers.Serializer[object]):
    residentKey = serializers.CharField()
    requireResidentKey = serializers.BooleanField()
    userVerification = serializers.CharField()


class PasskeyCreationOptionsOut(serializers.Serializer[object]):
    """For PublicKeyCredential.parseCreationOptionsFromJSON()."""

    rp = RelyingPartyOut()
    user = PasskeyUserOut(help_text="The user who gets the passkey.")
    challenge = serializers.CharField()
    pubKeyCredParams = PasskeyParameterOut(many=True)
    timeout = serializers.IntegerField()
    excludeCredentials = PasskeyDescriptorOut(many=True)
    authenticatorSelection = AuthenticatorSelectionOut()
    attestation = serializers.CharField()


class PasskeyRequestOptionsOut(serializers.Serializer[object]):
    """For PublicKeyCredential.parseRequestOptionsFromJSON()."""

    challenge = serializers.CharField()
    timeout = serializers.IntegerField()
    rpId = serializers.CharField()
    allowCredentials = PasskeyDescriptorOut(many=True)
    userVerification = serializers.CharField()


class EnrolledPasskeyOut(SuccessOut, LoginTokens):
    credential_id = serializers.CharField(help_text="Id of the new passkey, base64url.")


class PasskeySignUpOut(EnrolledPasskeyOut):
    access_token = serializers.CharField()
    refresh_token = serializers.CharField()
    token_type = serializers.CharField()
    expires_in = serializers.IntegerField()


class PasskeyVerificationOut(LoginTokens):
    success = serializers.BooleanField()
    user_id = serializers.UUIDField()


class RelatedOriginsQuery(serializers.Serializer[object]):
    tenant_id = Identifier(required=False, help_text="For a tenant that passes this path on from its own domain.")


class RelatedOriginsOut(serializers.Serializer[object]):
    origins = serializers.ListField(child=serializers.CharField())

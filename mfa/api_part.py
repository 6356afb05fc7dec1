"""What the core does not know of this app: its part of the API document, and rules of its paths."""

from collections.abc import Mapping
from typing import Any, Final

from identity_platform.api.app_parts import ApiPart
from identity_platform.api.tags import Tag
from userflow.api_part.example_values import (
    ADMIN_EMAIL,
    ADMIN_ID,
    CLIENT_ID,
    CODE,
    CREDENTIAL_ID,
    EMAIL,
    MFA_TOKEN,
    PASSWORD,
    PROOF_TOKEN,
)

SMS_CODE: Final = "730264"
TOTP_SECRET: Final = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
PHONE: Final = "+4915123456789"
CREATED: Final = {
    "id": CREDENTIAL_ID,
    "rawId": CREDENTIAL_ID,
    "type": "public-key",
    "response": {"clientDataJSON": "eyJ0eXBlIjoid2ViYXV0aG4uY3JlYXRlIn0", "attestationObject": "o2NmbXRkbm9uZQ"},
    "clientExtensionResults": {},
}

TAGS: Final[Mapping[str, Tag]] = {
    "Passkeys": Tag("Applications", 90, "WebAuthn: enrolling passkeys and signing in with them."),
    "TOTP": Tag("Applications", 100, "Authenticator apps and backup codes."),
    "SMS": Tag("Applications", 110, "Codes by text message."),
    "Factors": Tag("Applications", 120, "List and remove second factors."),
    "Factor recovery": Tag("Management", 20, "Reset the factors of a user, issue enrollment passes."),
}
TAG_OF_PREFIX: Final[Mapping[str, str]] = {
    "/.well-known/webauthn": "Passkeys",
    "/authmgr/step-up": "Sessions",
    "/webauthn/": "Passkeys",
    "/webauthn/admin/enrollment-passes": "Factor recovery",
    "/webauthn/admin/factors": "Factor recovery",
    "/webauthn/admin/totp/": "TOTP",
    "/webauthn/enrollment-passes": "Factor recovery",
    "/webauthn/factors": "Factors",
    "/webauthn/factors/reset": "Factor recovery",
    "/webauthn/sms/": "SMS",
    "/webauthn/totp/": "TOTP",
}
EXAMPLE_VALUES: Final[Mapping[str, Any]] = {
    # Users and sign-in
    "SmsVerification.method": "sms",
    "phone_number": PHONE,
    "phone_display": "***-***-6789",
    # Tokens
    "enrollment_pass": "ep_7Lm3Tc9Vn5Xk2Hd8",
    "proof_expires_in": 300,
    # Factors
    "SmsConfirmRequest.code": SMS_CODE,
    "SmsVerifyRequest.code": SMS_CODE,
    "secret": TOTP_SECRET,
    "account": EMAIL,
    "TotpSetup.issuer": "Acme",
    "manual_entry": "JBSW Y3DP EHPK 3PXP JBSW Y3DP EHPK 3PXP",
    "otp_auth_url": f"otpauth://totp/Acme:{EMAIL}?secret={TOTP_SECRET}&issuer=Acme",
    "qr_code": "iVBORw0KGgoAAAANSUhEUgAA",
    "backup_codes": ["7k2m-9xqr-4tzv-8bnd", "c3hf-5sgj-a1ew-6pyk"],
    "backup_codes_remaining": 10,
    "attempts_remaining": 5,
    "expires_in_minutes": 5,
    "credential": CREATED,
    "credential_id": CREDENTIAL_ID,
    "challenge": "tW7vX2mKq9ZrB4nL6cJ1pA",
    "timeout": 300000,
    "attestation": "none",
    "rp_id": "example.com",
    "rpId": "example.com",
    "RelyingParty.id": "example.com",
    "RelyingParty.name": "Acme",
    "PasskeyUser.id": "DpprXEfST4OhxpPY4gdLXw",
    "PasskeyUser.name": EMAIL,
    "displayName": "Ada Moreno",
    "PasskeyParameter.type": "public-key",
    "alg": -7,
    "PasskeyDescriptor.id": CREDENTIAL_ID,
    "PasskeyDescriptor.type": "public-key",
    "transports": ["internal"],
    "residentKey": "preferred",
    "userVerification": "preferred",
    "Factor.name": "Ada's laptop",
    "PasskeyNameRequest.name": "Work laptop",
    "removed": {"totp": 1, "webauthn": 1},
    "origins": ["https://app.example.com"],
}
EXAMPLE_BODIES: Final[Mapping[str, Mapping[str, Any]]] = {
    # Sign-in and tokens
    "stepUp": {"password": PASSWORD},
    "deleteAccount": {"current_password": PASSWORD},
    # Factors
    "verifyTotp": {"code": CODE},
    "verifyTotpLogin": {"code": CODE, "mfa_token": MFA_TOKEN},
    "disableTotp": {"code": CODE},
    "confirmTotpSetup": {"current_password": PASSWORD},
    "regenerateBackupCodes": {"code": CODE},
    "confirmSmsSetup": {"code": SMS_CODE, "current_password": PASSWORD},
    "finishPasskeyRegistration": {"current_password": PASSWORD},
    "finishPasskeySignUp": {"current_password": PASSWORD},
    "verifySmsCode": {"code": SMS_CODE},
    "beginPasskeyAuthentication": {"client_id": CLIENT_ID},
    "removeFactor": {"code": CODE},
    "issueEnrollmentPass": {"delivery": "mail"},
    "beginAdminTotpSetup": {"email": ADMIN_EMAIL},
    "confirmAdminTotpSetup": {"email": ADMIN_EMAIL, "current_password": PASSWORD},
    "verifyAdminTotpLogin": {"email": ADMIN_EMAIL, "code": CODE, "mfa_token": MFA_TOKEN},
    "disableAdminTotp": {"email": ADMIN_EMAIL, "code": CODE},
    "regenerateAdminBackupCodes": {"email": ADMIN_EMAIL, "proof_token": PROOF_TOKEN},
    "beginAdminPasskeyRegistration": {"email": ADMIN_EMAIL},
    "finishAdminPasskeyRegistration": {"email": ADMIN_EMAIL, "proof_token": PROOF_TOKEN},
    "beginAdminPasskeyAuthentication": {"email": ADMIN_EMAIL},
    "finishAdminPasskeyAuthentication": {"email": ADMIN_EMAIL},
    "resetAdminFactors": {"user_id": ADMIN_ID},
    "issueAdminEnrollmentPass": {"user_id": ADMIN_ID, "delivery": "mail"},
}
FIELD_DESCRIPTIONS: Final[Mapping[str, str]] = {
    # Records
    "factor_id": "Id of the factor, from the list of factors.",
    # Results
    "removed": "Number of removed factors by kind.",
    # Users
    "phone_number": "Phone number in E.164 form, such as +4915123456789.",
    # Sign-in and tokens
    "method": "The method that was used.",
    "proof_expires_in": "Seconds until `proof_token` expires.",
    "backup_codes": "Ten codes, each valid once; shown only now.",
    "backup_codes_remaining": "Number of unused backup codes.",
    # Factors
    "factors": "Enrolled factors by kind, oldest first.",
    "account": "Account name that the app shows.",
    "otp_auth_url": "otpauth URL with secret, account and issuer.",
    "phone_display": "The phone number with all but its end hidden.",
    "attempts_remaining": "Number of codes that can still be tried.",
    "expires_in_minutes": "Minutes until the code expires.",
    "challenge": "Single-use random value, base64url.",
    "timeout": "Milliseconds that the browser waits for the user.",
    "rp": "Relying party of the passkey.",
    "rpId": "RP ID of the passkeys.",
    "pubKeyCredParams": "Accepted algorithms, preferred first.",
    "excludeCredentials": "Passkeys of the user that exist already.",
    "allowCredentials": "Passkeys that can be used; empty: any of the RP ID.",
    "authenticatorSelection": "Requirements for the authenticator.",
    "attestation": "Whether the authenticator is to prove its make.",
    "transports": "How the browser can reach the authenticator.",
    "alg": "COSE algorithm, such as -7 (ES256).",
    "displayName": "Name of the user that the browser shows.",
    "residentKey": "Whether the passkey is to be discoverable.",
    "requireResidentKey": "Whether the passkey must be discoverable.",
    "userVerification": "Whether the authenticator must verify the user.",
    "origins": "Origins that may use the passkeys of this domain.",
}
RESPONSE_NAMES: Final[Mapping[str, str]] = {
    "address_rate_limited sms_limit_reached sms_reserved": "SmsLimited",
    "address_rate_limited too_many_pending_setups": "SetupsLimited",
    "attempts_exceeded code_invalid current_password_wrong factor_not_enrolled factor_required proof_token_invalid "
    "proof_too_new": "FactorProofInvalid",
    "attempts_exceeded code_invalid current_password_wrong factor_required proof_token_invalid proof_too_new "
    "secret_not_issued": "TotpSetupInvalid",
    "passkey_not_enrolled passkeys_not_configured passkeys_of_another_domain": "NoPasskeyToUse",
    "attempts_exceeded code_invalid current_password_wrong factor_required passkey_rejected passkeys_not_configured "
    "proof_token_invalid proof_too_new too_many_passkeys": "PasskeyNotAdded",
    "passkeys_not_configured too_many_passkeys": "PasskeyNotAddable",
    "code_expired enrollment_proof_required passkey_not_verified": "EnrollmentNotVerified",
    "enrollment_proof_required insufficient_user_authentication": "EnrollmentUnauthorized",
    "code_expired enrollment_proof_required insufficient_user_authentication invalid_client passkey_not_verified "
    "ticket_invalid": "ConfirmationUnauthorized",
    "email_not_verified token_of_another_user": "EnrollmentForbidden",
    "email_not_verified no_local_password token_of_another_user": "ConfirmationForbidden",
    "direct_sign_in_disabled email_not_verified no_local_password token_of_another_user": "CompletionForbidden",
    "no_local_password token_of_another_user": "ProofForbidden",
    "grant_exceeds_permissions not_for_yourself": "RecoveryForbidden",
    "email_not_found tenant_not_found": "EmailOrTenantNotFound",
}
TYPE_NAMES: Final[Mapping[str, str]] = {
    "EnrollmentPassRequest.delivery": "EnrollmentPassDelivery",
}

API_PART: Final = ApiPart(
    log_areas=frozenset({"sms"}),
    pages=frozenset({"/demo/"}),
    tags=TAGS,
    tag_of_prefix=TAG_OF_PREFIX,
    example_values=EXAMPLE_VALUES,
    example_bodies=EXAMPLE_BODIES,
    field_descriptions=FIELD_DESCRIPTIONS,
    response_names=RESPONSE_NAMES,
    type_names=TYPE_NAMES,
)

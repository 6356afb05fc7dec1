"""Names of what operations of the API document share, where they do not explain themselves."""

from collections.abc import Mapping
from typing import Final

# Responses with several codes that most operations do not have. A set of codes that is not listed here has no component: each
# operation states it.
RESPONSES: Final[Mapping[str, str]] = {
    "address_rate_limited attempts_locked": "AttemptsLimited",
    "attempts_exceeded code_invalid current_password_wrong factor_required proof_token_invalid proof_too_new": "ProofInvalid",
    "password_too_weak reset_token_invalid": "PasswordResetInvalid",
    "directory_address_rejected tenant_required": "DirectoryInvalid",
    "role_not_grantable tenant_required": "RolesInvalid",
    "code_expired passkey_not_verified": "FactorNotVerified",
    "built_in_role grant_exceeds_permissions": "RoleProtected",
    "cannot_deactivate_yourself grant_exceeds_permissions last_admin": "AdminProtected",
    "client_not_found tenant_not_found": "ClientOrTenantNotFound",
    "client_not_found directory_not_found tenant_not_found": "DirectoryOrClientNotFound",
    "directory_not_found tenant_not_found": "DirectoryNotFound",
    "domain_not_found tenant_not_found": "DomainNotFound",
    "group_not_found tenant_not_found": "GroupNotFound",
    "group_not_found tenant_not_found users_not_found": "GroupOrUsersNotFound",
    "invitation_not_found tenant_not_found": "InvitationNotFound",
    "role_not_found tenant_not_found": "RoleNotFound",
    "role_not_found tenant_not_found users_not_found": "RoleOrUsersNotFound",
    "tenant_not_found user_not_found": "UserOrTenantNotFound",
    "tenant_not_found webhook_endpoint_not_found": "WebhookEndpointNotFound",
    "admin_name_taken email_taken": "NameOrEmailTaken",
    "directories_busy directory_secret_locked": "DirectoryUnavailable",
}
# Types, by one of their uses.
TYPES: Final[Mapping[str, str]] = {
    "Branding.language": "Language",
    "EndUserImportByRowsRequest.format": "ImportFormat",
    "EndUserImportByRowsRequest.on_conflict": "ImportConflict",
    "OAuthClient.grant_types": "GrantType",
    "OAuthClient.id_token_signed_response_alg": "SigningAlgorithm",
    "OAuthClient.token_endpoint_auth_method": "TokenEndpointAuthMethod",
    "PasskeyAssertionRequest.response": "PasskeyCredential",
    "Tenant.settings": "TenantOwnSettings",
    "TenantRequest.settings": "TenantOwnSettingsRequest",
    "Tenant.settings.account_deletion": "AccountDeletion",
    "Tenant.settings.email_verification": "EmailVerification",
    "Tenant.settings.enrollment_mode": "EnrollmentMode",
    "Tenant.settings.mfa_policy": "MfaPolicy",
    "WebhookEndpointRequest.events": "WebhookEventFilter",
    "WebhookReplayByStatusRequest.status": "WebhookMessageStatus",
}

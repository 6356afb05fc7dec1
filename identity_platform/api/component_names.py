"""Names of the schemas of the API document, which generated clients use as names of types.

By rule, `GroupOut` becomes `Group`, and `GroupIn` becomes `GroupRequest`. `CHOSEN` names schemas whose serializer has a name
that says too little outside its module. Several schemas with one name must have the same shape, and become one.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

Schema = dict[str, Any]

_SCHEMAS: Final = "#/components/schemas/"
CHOSEN: Final[Mapping[str, str]] = {
    # Responses that several operations have in common
    "DirectoryDeletedOut": "DeletedRecord",
    "DeletedOut": "DeletedRecord",
    "DomainDeletedOut": "DeletedRecord",
    "GroupDeletedOut": "DeletedRecord",
    "RoleDeletedOut": "DeletedRecord",
    "ServiceRemovedOut": "DeletedRecord",
    "SessionEndedOut": "DeletedRecord",
    "WebhookEndpointDeletedOut": "DeletedRecord",
    "ResentOut": "Message",
    "FactorRemovedOut": "Success",
    "TotpDoneOut": "Success",
    "LogoutOut": "EndedSessions",
    "PasswordSetOut": "EndedSessions",
    "SessionsEndedOut": "EndedUserSessions",
    "StatusOut": "HealthStatus",
    "ReadyOut": "Readiness",
    # Sign-in and factors
    "SecondStepOut": "SecondStepRequired",
    "BackupCodesOut": "NewBackupCodes",
    "TotpBeginOut": "TotpSetup",
    "TotpConfirmedOut": "TotpConfirmation",
    "TotpVerifiedOut": "TotpVerification",
    "AdminTotpVerifiedOut": "AdminTotpVerification",
    "SmsSentOut": "SentSmsCode",
    "SmsConfirmedOut": "SmsConfirmation",
    "SmsVerifiedOut": "SmsVerification",
    "VerifiedOut": "PasskeyVerification",
    "EnrolledOut": "EnrolledPasskey",
    "EnrolledAndSignedInOut": "PasskeySignUp",
    "CreationOptionsOut": "PasskeyCreationOptions",
    "RequestOptionsOut": "PasskeyRequestOptions",
    "DescriptorOut": "PasskeyDescriptor",
    "ParameterOut": "PasskeyParameter",
    "SelectionOut": "AuthenticatorSelection",
    "EmailVerifiedOut": "VerifiedEmail",
    "EmailUndoneOut": "UndoneEmailChange",
    "VerifyRequest": "VerifyEmailRequest",
    "VerifyByTokenRequest": "VerifyEmailByTokenRequest",
    "VerifyByTenantIdAndEmailAndCodeRequest": "VerifyEmailByCodeRequest",
    "UndoRequest": "UndoEmailChangeRequest",
    "ResendRequest": "ResendEmailVerificationRequest",
    "ChangeRequest": "PasswordChangeRequest",
    "EndUserForgotRequest": "ForgotPasswordRequest",
    "EndUserForgotByClientIdRequest": "ForgotPasswordByClientIdRequest",
    "EndUserForgotByTenantIdRequest": "ForgotPasswordByTenantIdRequest",
    "EndUserResetRequest": "PasswordResetRequest",
    "ResetRequest": "AdminPasswordResetRequest",
    "AccountClosingRequest": "ProofRequest",
    "FactorRemovalRequest": "ProofRequest",
    "AdminForgotRequest": "AdminEmailRequest",
    "AdminNamedRequest": "AdminEmailRequest",
    "AdminTotpBeginRequest": "AdminEmailRequest",
    "AdminRegistrationRequest": "AdminEnrollmentRequest",
    "AdminTotpSetupRequest": "AdminEnrollmentRequest",
    "AdminAssertionRequest": "AdminPasskeyAssertionRequest",
    "EndUserBeginRequest": "PasskeyAuthenticationRequest",
    "EndUserRegistrationRequest": "PasskeyRegistrationRequest",
    "EndUserAssertionRequest": "PasskeyAssertionRequest",
    "EndUserPasskeyRequest": "PasskeyRequest",
    "SignUpRequest": "PasskeySignUpRequest",
    "SmsBeginRequest": "SmsSetupRequest",
    "SmsRequestCodeRequest": "SmsCodeRequest",
    # Tokens and access
    "MetadataOut": "ServerMetadata",
    "PushedRequestOut": "PushedAuthorization",
    "PushedRequestRequest": "PushedAuthorizationRequest",
    "TokenNamedRequest": "PresentedTokenRequest",
    "ValidOut": "TokenValidation",
    "PermissionsOut": "PermissionCheck",
    "PermissionsRequest": "PermissionCheckRequest",
    "ResourceOut": "ResourceCheck",
    "HoldsOut": "ScopeCheck",
    # Users
    "ActivityOut": "UserStatus",
    "AdminActiveOut": "UserStatus",
    "DeactivatedOut": "DeactivatedUser",
    "ErasedOut": "ErasedUser",
    "EndUserChangedOut": "ChangedEndUser",
    "RegisterOut": "RegisteredEndUser",
    "RegisterRequest": "RegistrationRequest",
    "AcceptedOut": "AcceptedInvitation",
    "AcceptRequest": "AcceptInvitationRequest",
    "EndUserListRequest": "EndUserSearchRequest",
    "AdminEndUserListRequest": "EndUserSearchByProjectRequest",
    "StatusRequest": "EndUserStatusRequest",
    "ExportOut": "EndUserExport",
    "ExportedOut": "ExportedEndUser",
    "ExportRequest": "EndUserExportRequest",
    "ImportOut": "EndUserImport",
    "ImportRequest": "EndUserImportRequest",
    "ImportByRowsRequest": "EndUserImportByRowsRequest",
    "ImportByContentRequest": "EndUserImportByContentRequest",
    "FaultOut": "ImportFault",
    "BoundOut": "ChangedRoleBindings",
    "JoinedOut": "ChangedGroupMembers",
    "AdminListOut": "AdminUserList",
    "AdminProfileOut": "AdminUserDetail",
    "AdminBrief": "AdminUserBrief",
    # Administration
    "AuditOut": "AuditEventList",
    "EventOut": "AuditEvent",
    # Generated clients have a class of their own named Client.
    "ClientOut": "OAuthClient",
    "SecretRequest": "ClientSecretRequest",
    "RotatedOut": "RotatedClient",
    "DatabaseOut": "TenantDatabase",
    "MappingOut": "TenantDatabaseMapping",
    "TenantDeletedOut": "DeletedTenant",
    "OneServiceSecretOut": "ServiceCredentialWithSecret",
    "SettingsChangesRequest": "TenantSettingsChangesRequest",
    "TextsOut": "BrandingTexts",
    "TextsRequest": "BrandingTextsRequest",
    "MappingRequest": "AttributeMappingRequest",
    "LastRunOut": "LastDirectoryRun",
    "RunOut": "DirectoryRun",
    "RunListOut": "DirectoryRunList",
    "PreviewOut": "DirectoryRunPreview",
    "ProblemOut": "DirectoryRunProblem",
    "SampleOut": "DirectorySample",
    "TriedOut": "DirectoryTest",
    "SyncRequest": "DirectorySyncRequest",
    "DomainVerifyRequest": "OptionalTenantRequest",
    "WebhookTestRequest": "OptionalTenantRequest",
}


def name_requests(document: Schema) -> None:
    """Name bodies `GroupRequest`, where drf-spectacular makes `GroupInRequest` of the serializer GroupIn."""
    names = {name: re.sub("InRequest$", "Request", name) for name in document["components"]["schemas"]}
    rename(document, names)


def name_schemas(document: Schema) -> None:
    """Give the schemas their final names."""
    names = {name: CHOSEN.get(name, name.removesuffix("Out")) for name in document["components"]["schemas"]}
    rename(document, names)


def rename(document: Schema, names: Mapping[str, str]) -> None:
    """Rename schemas. Raises ValueError if schemas of different shapes would have one name."""
    renamed: Schema = {}
    for name, schema in document["components"]["schemas"].items():
        kept = renamed.setdefault(names[name], schema)
        if _shape(kept) != _shape(schema):
            raise ValueError(f"Two schemas of different shapes would be named {names[name]}.")
    document["components"]["schemas"] = renamed
    for part in objects_in(document):
        if isinstance(target := part.get("$ref"), str) and target.startswith(_SCHEMAS):
            part["$ref"] = _SCHEMAS + names[target.removeprefix(_SCHEMAS)]


def objects_in(content: Any) -> Iterator[Schema]:
    """Yield the objects of a part of the document, the outer before the inner."""
    if isinstance(content, dict):
        yield content
    for inner in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from objects_in(inner)


def _shape(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "description"}

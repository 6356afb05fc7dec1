"""The error responses of the API document: one component for each status and set of codes that several operations have."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from drf_spectacular.plumbing import ComponentRegistry, ResolvedComponent

from identity_platform.api import errors
from identity_platform.api.handlers import is_oauth, oauth_code
from identity_platform.api.views import Contract

Kind = type[errors.ApiError]
Schema = dict[str, Any]

# Not from `http.HTTPStatus`, whose phrases depend on the version of Python. Response components are named after them.
PHRASES: Final = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    429: "Too Many Requests",
    500: "Server Fault",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Unavailable",
}
# In the names of responses: what an operation lacks that most operations have.
WITHOUT: Final = {"body": "Query", "token": "Public", "policy": "AnyLevel", "tenant": "Platform"}
# Names of the responses with several codes that most operations do not have. A set of codes that is not listed here has no
# component: each operation states it.
NAMES: Final[Mapping[str, str]] = {
    "address_rate_limited attempts_locked": "AttemptsLimited",
    "address_rate_limited sms_limit_reached sms_reserved": "SmsLimited",
    "address_rate_limited too_many_pending_setups": "SetupsLimited",
    "attempts_exceeded code_invalid current_password_wrong factor_required proof_token_invalid proof_too_new": "ProofInvalid",
    "attempts_exceeded code_invalid current_password_wrong factor_not_enrolled factor_required proof_token_invalid "
    "proof_too_new": "FactorProofInvalid",
    "attempts_exceeded code_invalid current_password_wrong factor_required proof_token_invalid proof_too_new "
    "secret_not_issued": "TotpSetupInvalid",
    "passkey_not_enrolled passkeys_not_configured passkeys_of_another_domain": "NoPasskeyToUse",
    "attempts_exceeded code_invalid current_password_wrong factor_required passkey_rejected passkeys_not_configured "
    "proof_token_invalid proof_too_new too_many_passkeys": "PasskeyNotAdded",
    "passkeys_not_configured too_many_passkeys": "PasskeyNotAddable",
    "password_too_weak reset_token_invalid": "PasswordResetInvalid",
    "directory_address_rejected tenant_required": "DirectoryInvalid",
    "role_not_grantable tenant_required": "RolesInvalid",
    "code_expired passkey_not_verified": "FactorNotVerified",
    "code_expired enrollment_proof_required passkey_not_verified": "EnrollmentNotVerified",
    "enrollment_proof_required insufficient_user_authentication": "EnrollmentUnauthorized",
    "code_expired enrollment_proof_required insufficient_user_authentication invalid_client passkey_not_verified "
    "ticket_invalid": "ConfirmationUnauthorized",
    "email_not_verified token_of_another_user": "EnrollmentForbidden",
    "email_not_verified no_local_password token_of_another_user": "ConfirmationForbidden",
    "direct_sign_in_disabled email_not_verified no_local_password token_of_another_user": "CompletionForbidden",
    "no_local_password token_of_another_user": "ProofForbidden",
    "built_in_role grant_exceeds_permissions": "RoleProtected",
    "cannot_deactivate_yourself grant_exceeds_permissions last_admin": "AdminProtected",
    "grant_exceeds_permissions not_for_yourself": "RecoveryForbidden",
    "client_not_found tenant_not_found": "ClientOrTenantNotFound",
    "client_not_found directory_not_found tenant_not_found": "DirectoryOrClientNotFound",
    "directory_not_found tenant_not_found": "DirectoryNotFound",
    "domain_not_found tenant_not_found": "DomainNotFound",
    "email_not_found tenant_not_found": "EmailOrTenantNotFound",
    "group_not_found tenant_not_found": "GroupNotFound",
    "group_not_found tenant_not_found users_not_found": "GroupOrUsersNotFound",
    "invitation_not_found tenant_not_found": "InvitationNotFound",
    "role_not_found tenant_not_found": "RoleNotFound",
    "role_not_found tenant_not_found users_not_found": "RoleOrUsersNotFound",
    "tenant_not_found user_not_found": "UserOrTenantNotFound",
    "tenant_not_found webhook_endpoint_not_found": "WebhookEndpointNotFound",
    "NOT_FOUND SERVICE_NOT_FOUND": "ServiceNotFound",
    "CREDENTIAL_NOT_FOUND NOT_FOUND SERVICE_NOT_FOUND": "CredentialNotFound",
    "admin_name_taken email_taken": "NameOrEmailTaken",
    "directories_busy directory_secret_locked": "DirectoryUnavailable",
}

_MESSAGE: Final = {"type": "string", "description": "For people: says what to do next."}
_DETAILS: Final = {"type": "object", "additionalProperties": {}}
BODIES: Final[Mapping[str, Schema]] = {
    "ErrorBody": {
        "type": "object",
        "description": "The error of all endpoints but those of the registry and of OAuth.",
        "properties": {
            "error": {"type": "string", "description": "Reason phrase of the status."},
            "code": {"type": "string", "description": "Stable, for programs."},
            "message": _MESSAGE,
            "details": {**_DETAILS, "description": "A field's messages."},
        },
        "required": ["error", "code", "message"],
    },
    "RegistryProblem": {
        "type": "object",
        "description": "The `error` of endpoints below /exsvc/.",
        "properties": {
            "code": {"type": "string", "description": "Stable, for programs."},
            "message": _MESSAGE,
            "details": {**_DETAILS, "description": "Figures, or a field's messages."},
        },
        "required": ["code", "message"],
    },
    "OAuthErrorBody": {
        "type": "object",
        "description": "The error of OAuth endpoints (RFC 6749 section 5.2).",
        "properties": {
            "error": {"type": "string"},
            "error_description": {"type": "string"},
            "code": {
                "type": "string",
                "enum": ["tenant_suspended"],
                "description": "Only while the tenant is suspended. Its refresh tokens are valid again once it is resumed.",
            },
        },
        "required": ["error", "error_description"],
    },
}


def error_classes(base: Kind = errors.ApiError) -> Iterator[Kind]:
    """Return all classes of errors below `base` that are loaded."""
    for kind in base.__subclasses__():
        yield kind
        yield from error_classes(kind)


def possible_errors(contract: Contract) -> Mapping[int, Sequence[Kind]]:
    """Return the errors of an operation by status: those of its contract and those that its kind of operation implies."""
    groups = groups_of(contract)
    kinds = [*contract.errors, *(kind for kind in error_classes() if vars(kind).get("implied_by") in groups)]
    by_status: dict[int, list[Kind]] = defaultdict(list)
    for kind in dict.fromkeys(kinds):
        by_status[kind.status].append(kind)
    return dict(sorted(by_status.items()))


def groups_of(contract: Contract) -> set[str]:
    """Return the values of `ApiError.implied_by` that apply to an operation."""
    has_token = contract.token != "none"
    in_tenant = has_token or any(vars(kind).get("implied_by") == "tenant" for kind in contract.errors)
    groups = {
        "any": True,
        "body": contract.body is not None,
        "token": has_token,
        "policy": has_token and not contract.any_level,
        "tenant": in_tenant,
    }
    return {name for name, applies in groups.items() if applies}


def shown_codes(kinds: Iterable[Kind], path: str) -> set[str]:
    """Return the codes of errors in the envelope of `path`."""
    if path.startswith("/exsvc/"):
        return {kind.registry_code for kind in kinds}
    if not is_oauth(path):
        return {code for kind in kinds for code in kind.codes()}
    return {
        code
        for kind in kinds
        for code in (kind.codes() if issubclass(kind, errors.OAuthError) else [oauth_code(kind.status)])
    }


class ErrorResponses:
    """The error responses of one operation, as references to components."""

    def __init__(self, registry: ComponentRegistry, path: str, contract: Contract) -> None:
        self.registry = registry
        self.path = path
        self.groups = groups_of(contract)

    def response(self, status: int, kinds: Sequence[Kind], headers: Schema) -> Schema:
        """Return the reference to the component of this status and these errors, which it adds if it is missing."""
        codes = shown_codes(kinds, self.path)
        implied = self._implied(status)
        extra = sorted(codes.difference(*(implied[group] for group in implied.keys() & self.groups)))
        described = {"description": PHRASES[status], "headers": headers}
        if not (name := self._name(status, codes, extra, implied)):
            return {**described, "content": {"application/json": {"schema": self._schema(codes)}}}
        schema = reference_to(self.registry, "schemas", f"{name}Error", self._schema(codes))
        described["content"] = {"application/json": {"schema": schema}}
        return reference_to(self.registry, "responses", name, described)

    def _name(self, status: int, codes: set[str], extra: Sequence[str], implied: Mapping[str, set[str]]) -> str:
        """Return a name of the codes that most operations do not have, else of the status, and of what is missing.

        The name is empty if there is none for these codes.
        """
        prefix = "Registry" if self.path.startswith("/exsvc/") else "OAuth" if is_oauth(self.path) else ""
        lacking = [WITHOUT[group] for group, shown in implied.items() if group in WITHOUT and shown - codes]
        if "Public" in lacking:
            lacking = [word for word in lacking if word != "AnyLevel"]
        if not extra:
            named = PHRASES[status].replace(" ", "")
        elif len(extra) == 1:
            named = "".join(word.capitalize() for word in extra[0].split("_"))
        else:
            named = NAMES.get(" ".join(extra), "")
        return named and f"{prefix}{''.join(lacking)}{named}"

    def _implied(self, status: int) -> Mapping[str, set[str]]:
        by_group: dict[str, set[str]] = defaultdict(set)
        for kind in error_classes():
            group = vars(kind).get("implied_by")
            if group and kind.status == status:
                by_group[group] |= shown_codes([kind], self.path)
        return by_group

    def _schema(self, codes: set[str]) -> Schema:
        listed = {"type": "string", "enum": sorted(codes)}
        if self.path.startswith("/exsvc/"):
            problem = _narrowed(self._body("RegistryProblem"), {"code": listed})
            return {"type": "object", "properties": {"error": problem}, "required": ["error"]}
        if is_oauth(self.path):
            return _narrowed(self._body("OAuthErrorBody"), {"error": listed})
        return _narrowed(self._body("ErrorBody"), {"code": listed})

    def _body(self, name: str) -> Schema:
        return reference_to(self.registry, "schemas", name, dict(BODIES[name]))


def reference_to(registry: ComponentRegistry, kind: str, name: str, content: Schema) -> Schema:
    """Return a reference to a component, which is added if it is missing. Two components of one name must be equal."""
    component = ResolvedComponent(name, kind, content, name)  # type: ignore[no-untyped-call]  # it has no types
    registry.register_on_missing(component)
    if registry[component].schema != content:
        raise ValueError(f"Two components have the name {name}.")
    reference: Schema = component.ref
    return reference


def _narrowed(body: Schema, properties: Schema) -> Schema:
    """Return the body with an enum for a field, which the body requires already."""
    return {"allOf": [body, {"properties": properties}]}

"""The error responses of the API document: one component for each status and set of codes."""

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
WITHOUT: Final = {"body": "NoBody", "token": "Public", "policy": "AnyLevel", "tenant": "Platform"}

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
        "properties": {"error": {"type": "string"}, "error_description": {"type": "string"}},
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
        name = self._name(status, codes, extra, implied)
        schema = reference_to(self.registry, "schemas", f"{name}Error", self._schema(codes))
        content = {"application/json": {"schema": schema}}
        described = {"description": PHRASES[status], "headers": headers, "content": content}
        return reference_to(self.registry, "responses", name, described)

    def _name(self, status: int, codes: set[str], extra: Sequence[str], implied: Mapping[str, set[str]]) -> str:
        """Return a name of the codes that most operations do not have, else of the status, and of what is missing."""
        prefix = "Registry" if self.path.startswith("/exsvc/") else "OAuth" if is_oauth(self.path) else ""
        lacking = [WITHOUT[group] for group, shown in implied.items() if group in WITHOUT and shown - codes]
        if "Public" in lacking:
            lacking = [word for word in lacking if word != "AnyLevel"]
        named = "Or".join("".join(word.capitalize() for word in code.split("_")) for code in extra)
        return f"{prefix}{''.join(lacking)}{named or PHRASES[status].replace(' ', '')}"

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
    """Return the body with an enum for a field."""
    return {"allOf": [body, {"properties": properties, "required": sorted(properties)}]}

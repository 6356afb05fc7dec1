"""The error responses of the API document: one component for each status and set of codes that several operations have."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from drf_spectacular.plumbing import ComponentRegistry, ResolvedComponent

from identity_platform.api import errors
from identity_platform.api.app_parts import api_part, error_format_of
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


class ErrorResponses:
    """The error responses of one operation, as references to components."""

    def __init__(self, registry: ComponentRegistry, path: str, contract: Contract) -> None:
        self.registry = registry
        self.format = error_format_of(path)
        self.groups = groups_of(contract)

    def response(self, status: int, kinds: Sequence[Kind], headers: Schema) -> Schema:
        """Return the reference to the component of this status and these errors, which it adds if it is missing."""
        codes = self._codes(kinds)
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
        lacking = [WITHOUT[group] for group, shown in implied.items() if group in WITHOUT and shown - codes]
        if "Public" in lacking:
            lacking = [word for word in lacking if word != "AnyLevel"]
        if not extra:
            extra_name = PHRASES[status].replace(" ", "")
        elif len(extra) == 1:
            extra_name = "".join(word.capitalize() for word in extra[0].split("_"))
        else:
            extra_name = api_part().response_names.get(" ".join(extra), "")
        return extra_name and f"{self.format.prefix}{''.join(lacking)}{extra_name}"

    def _implied(self, status: int) -> Mapping[str, set[str]]:
        by_group: dict[str, set[str]] = defaultdict(set)
        for kind in error_classes():
            group = vars(kind).get("implied_by")
            if group and kind.status == status:
                by_group[group] |= self._codes([kind])
        return by_group

    def _codes(self, kinds: Iterable[Kind]) -> set[str]:
        return {code for kind in kinds for code in self.format.codes(kind)}

    def _schema(self, codes: set[str]) -> Schema:
        others = sorted(set(api_part().error_formats.values()), key=lambda each: each.prefix, reverse=True)
        body = reference_to(self.registry, "schemas", self.format.schema_name, self.format.schema(others))
        return self.format.narrowed(body, {"type": "string", "enum": sorted(codes)})


def reference_to(registry: ComponentRegistry, kind: str, name: str, content: Schema) -> Schema:
    """Return a reference to a component, which is added if it is missing. Two components of one name must be equal."""
    component = ResolvedComponent(name, kind, content, name)  # type: ignore[no-untyped-call]  # it has no types
    registry.register_on_missing(component)
    if registry[component].schema != content:
        raise ValueError(f"Two components have the name {name}.")
    reference: Schema = component.ref
    return reference

"""OpenAPI 3.1 from the endpoints' contracts (`views.endpoint`) by drf-spectacular."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from drf_spectacular.extensions import OpenApiSerializerExtension, OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers

from identity_platform.api.alternatives import STATED, expand_alternatives
from identity_platform.api.app_parts import api_part, is_oauth
from identity_platform.api.component_names import name_schemas, objects_in
from identity_platform.api.error_responses import ErrorResponses, possible_errors, reference_to
from identity_platform.api.examples import add_examples
from identity_platform.api.field_descriptions import describe
from identity_platform.api.fields import StrictField
from identity_platform.api.inherited_schemas import inherit
from identity_platform.api.one_of import OneOf
from identity_platform.api.operation_descriptions import describe_access
from identity_platform.api.shared_components import share
from identity_platform.api.tags import grouped, tag_of
from identity_platform.api.views import Contract, Shape

# Response headers besides those of contracts. The key is the name of the component.
HEADERS: Final[Mapping[str, tuple[str, str]]] = {
    "X-Request-ID": ("string", "Id of this request."),
    "Retry-After": ("integer", "Seconds until a call can pass."),
    "WWW-Authenticate": (
        "string",
        '`Bearer realm="api"` without a token; `Bearer` with `error="invalid_token"` for a token that is not valid, on 403 '
        'with `error="insufficient_scope"` for a token that lacks a permission (RFC 6750 section 3), and on 401 with '
        '`error="insufficient_user_authentication"`, `max_age` and `acr_values` for a session that has proven too little '
        "(RFC 9470). `DPoP` with `algs` instead for a token that was sent so (RFC 9449 section 7.1). `Basic` for a client "
        "that has not authenticated (RFC 6749 section 5.2).",
    ),
    "Accept-Encoding": ("string", "`identity`, if the body was sent with Content-Encoding."),
    "Cache-Control": ("string", "`no-store` (RFC 6749 section 5.1)."),
    "DPoP-Nonce": ("string", "Nonce for the next DPoP proof, if the platform requires nonces (RFC 9449 section 8)."),
}


class StrictFieldSchema(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # its metaclass is untyped
    """Pass the field's own schema to drf-spectacular."""

    target_class = StrictField
    match_subclasses = True

    def map_serializer_field(self, auto_schema: object, direction: str) -> dict[str, object]:
        schema: dict[str, object] = self.target.openapi()
        return schema


Parameter = OpenApiParameter | serializers.Serializer[object] | Shape


class OneOfSchema(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]  # its metaclass is untyped
    """List the shapes of a response."""

    target_class = OneOf
    match_subclasses = True

    def map_serializer(self, auto_schema: AutoSchema, direction: Literal["request", "response"]) -> dict[str, object]:
        return {"oneOf": [auto_schema.resolve_serializer(shape, direction).ref for shape in self.target.choices]}


class ContractSchema(AutoSchema):
    """Describe an operation by the `Contract` of its action."""

    @property
    def contract(self) -> Contract:
        return getattr(self._action, "contract", None) or Contract()

    @property
    def _action(self) -> object:
        return getattr(self.view, getattr(self.view, "action", None) or self.method.lower(), None)

    @property
    def _doc(self) -> list[str]:
        return (self._action.__doc__ or "").strip().split("\n")

    def get_tags(self) -> list[str]:
        return [tag_of(self.path, api_part().tag_of_prefix)]

    def get_operation_id(self) -> str:
        return self.contract.id

    def get_summary(self) -> str | None:
        return self._doc[0] or None

    def get_description(self) -> str:  # type: ignore[override]  # as drf-spectacular calls it
        return "\n".join(
            [*map(str.strip, self._doc[1:]), describe_access(self.contract, self.view.get_permissions())]
        ).strip()

    def map_parsers(self) -> list[str]:
        """Return the first media type only: with two, generators send the model as the wrong one."""
        return list(super().map_parsers()[:1])

    def get_request_serializer(self) -> Shape | None:
        return self.contract.body

    def _get_request_body(self, direction: str = "request") -> Any:
        # drf-spectacular leaves out the body of a DELETE, though RFC 9110 section 9.3.5 lets an API define one.
        method = self.method
        if method == "DELETE" and self.contract.body:
            self.method = "POST"
        try:
            return super()._get_request_body(direction)  # type: ignore[no-untyped-call]  # it has no types
        finally:
            self.method = method

    def get_auth(self) -> list[dict[str, object]]:
        token: list[dict[str, object]] = [{"bearer": []}, {"oauth2": []}]
        methods = {"required": token, "optional": [*token, {}], "none": []}[self.contract.token]
        header = self.contract.headers.get("Authorization", "")
        if "Bearer" in header:
            return [{"bearer": []}, {}]
        if "Basic" in header:
            # A client can also authenticate in the body, and a public one by its id alone.
            return [{"client": []}, *(methods or [{}])]
        return methods

    def get_override_parameters(self) -> list[Parameter]:
        contract = self.contract
        return [
            *([contract.query] if contract.query else []),
            *(
                OpenApiParameter(name, str, OpenApiParameter.HEADER, description=meaning)
                for name, meaning in contract.headers.items()
                # A security scheme: OpenAPI ignores this parameter.
                if name != "Authorization"
            ),
        ]

    def get_operation(self, *arguments: Any) -> dict[str, Any] | None:
        operation = super().get_operation(*arguments)
        # Public operations say so: without `security` a reader cannot tell them from forgotten ones.
        return operation and {"security": [], **operation}

    def get_extensions(self) -> dict[str, object]:
        """List the rows of the action table that the operation checks."""
        rows = self.contract.assurance
        return {"x-assurance": [str(row) for row in ([rows] if isinstance(rows, str) else rows)]} if rows else {}

    def _map_serializer(self, serializer: Any, direction: Any, bypass_extensions: bool = False) -> Any:
        schema = super()._map_serializer(serializer, direction, bypass_extensions)  # type: ignore[no-untyped-call]  # it has no types
        groups = getattr(serializer, "any_of", ())
        return {**schema, STATED: groups} if groups and direction == "request" else schema

    def _is_list_view(self, serializer: object = None) -> bool:
        """Return False: lists are objects with rows and totals, never bare arrays."""
        return False

    def get_response_serializers(self) -> Any:
        return {
            status: OpenApiResponse(shape) if shape else OpenApiResponse(description="No body.")
            for status, shape in self.contract.returns.items()
        }

    def _get_response_bodies(self, direction: Literal["request", "response"] = "response") -> Any:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        component = ErrorResponses(self.registry, self.path, self.contract)
        for status, kinds in possible_errors(self.contract).items():
            if str(status) not in bodies:
                headers = self._get_response_headers_for_code(str(status))
                if any("use_dpop_nonce" in kind.codes() for kind in kinds) or (status == 401 and is_oauth(self.path)):
                    headers["DPoP-Nonce"] = self._header("DPoP-Nonce", None)
                bodies[str(status)] = component.response(status, kinds, headers)
        return bodies

    def _get_response_headers_for_code(self, status_code: str, direction: str = "response") -> dict[str, Any]:
        """Return references to the headers of a response."""
        contract, names = self.contract, ["X-Request-ID"]
        described_headers = {**contract.answer_headers, **contract.limit_headers}
        if status_code in map(str, contract.returns):
            names += contract.answer_headers
        if status_code != "401":
            names += contract.limit_headers
        if status_code in ("401", "403"):
            names.append("WWW-Authenticate")
        if status_code in ("429", "503"):
            names.append("Retry-After")
        if status_code == "415":
            names.append("Accept-Encoding")
        if is_oauth(self.path):
            names.append("Cache-Control")
        return {name: self._header(name, described_headers.get(name)) for name in names}

    def _header(self, name: str, meaning: str | None) -> dict[str, Any]:
        kind, described = (
            ("integer" if name in self.contract.limit_headers else "string", meaning) if meaning else HEADERS[name]
        )
        return reference_to(self.registry, "headers", name, {"schema": {"type": kind}, "description": described})


def finish(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """Add the tags in order, the security scheme and the format of ids in paths.

    drf-spectacular adds the scheme (RFC 6750) only if it finds the authentication class itself, and here each operation
    states its own.
    """
    name_schemas(result)
    _move_null_out_of_enums(result)
    expand_alternatives(result["components"]["schemas"])
    part = api_part()
    groups = grouped(part.tags)
    result["tags"] = [
        {"name": name, "description": part.tags[name].description} for names in groups.values() for name in names
    ]
    result["x-tagGroups"] = [{"name": group, "tags": names} for group, names in groups.items()]
    result["components"]["securitySchemes"] = part.security_schemes
    for path in result.get("paths", {}).values():
        for operation in path.values():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if body:
                name = body["schema"].get("$ref", "").rpartition("/")[2]
                if "anyOf" in result["components"]["schemas"].get(name, {}):
                    operation["requestBody"]["required"] = True
                _take_null(body["schema"], result["components"]["schemas"])
            for parameter in operation.get("parameters", []):
                if parameter.get("in") == "path" and parameter["name"].endswith("id"):
                    parameter["schema"] = {"type": "string", "format": "uuid"}
    describe(result)
    add_examples(result)
    inherit(result["components"]["schemas"])
    share(result)
    return result


def _move_null_out_of_enums(document: dict[str, Any]) -> None:
    """State null beside an enum, and not within it: generators would make a class of each."""
    for schema in objects_in(document):
        # A hash of the enum for a hook of drf-spectacular that is not in use.
        schema.pop("x-spec-enum-id", None)
        if None in schema.get("enum", ()):
            values = [value for value in schema.pop("enum") if value is not None]
            schema["oneOf"] = [{"type": "string", "enum": values}, {"type": "null"}]
            del schema["type"]


def _take_null(schema: dict[str, Any], components: dict[str, Any]) -> None:
    """Allow null for the optional fields of a JSON body, as `NullIsAbsent` does. Idempotent."""
    if "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    for choice in schema.get("anyOf", []):
        _take_null(choice, components)
    for name, field in schema.get("properties", {}).items():
        _take_null(field, components)
        if name in schema.get("required", []):
            continue
        # Null beside an enum, and not within it: generators would make a class of each.
        if isinstance(field.get("type"), str) and not {"properties", "enum"} & field.keys():
            field["type"] = [field["type"], "null"]
        elif not isinstance(field.get("type"), list) and {"type": "null"} not in field.get("oneOf", []):
            described = {key: field.pop(key) for key in ("description", "default") if key in field}
            inner = dict(field)
            field.clear()
            field.update({"oneOf": [*inner.get("oneOf", [inner]), {"type": "null"}], **described})

"""Base of the API's view sets: validate, act, respond."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from typing import Any, NoReturn, TypeVar

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.viewsets import ViewSet

from identity_platform.api.errors import ApiError, MethodNotAllowed, ValidationFailed
from identity_platform.api.parsers import query_parameters

View = TypeVar("View", bound=Callable[..., HttpResponseBase])
Shape = type[serializers.Serializer[object]]
# Validated fields as the arguments of an action, which checks them.
Arguments = dict[str, Any]


@dataclass(frozen=True)
class Contract:
    """Input, output and errors of an action, which it decorates.

    The OpenAPI generator reads it, so that document and code agree. The first line of the action's docstring is the
    summary in the API document, the rest the description. `headers`, `answer_headers` and `limit_headers` map a header's
    name to its meaning.
    """

    body: Shape | None = None
    _: KW_ONLY
    # The operation id, which generated clients use as the name of their method: a verb and a noun in camelCase.
    id: str = ""
    query: Shape | None = None
    returns: Mapping[int, Shape | None] = field(default_factory=dict)
    # Beyond those of every endpoint: body, token, permission, limits, faults.
    errors: Sequence[type[ApiError]] = ()
    # "required": a Bearer token; "optional": works without; "none": never looks at one.
    token: str = "required"
    headers: Mapping[str, str] = field(default_factory=dict)
    answer_headers: Mapping[str, str] = field(default_factory=dict)
    # On every response but 401: a limit is counted as soon as the caller is known.
    limit_headers: Mapping[str, str] = field(default_factory=dict)
    # Whether a session below the required assurance level may call it: to enroll a factor, or to sign out.
    any_level: bool = False
    # Rows of the action table that the endpoint checks, always or for some bodies.
    assurance: str | Sequence[str] = ()

    def __call__(self, action: View) -> View:
        action.contract = self  # type: ignore[attr-defined]  # functions carry attributes, typing does not know
        return action


endpoint = Contract


class ApiViewSet(ViewSet):
    """A DRF view set that checks the method before the token, and validates with serializers."""

    http_method_names = ["get", "post", "put", "patch", "delete", "head"]
    format_kwarg = None

    @property
    def default_response_headers(self) -> dict[str, str]:
        """Return none: `Allow` belongs to 405 (RFC 9110 section 15.5.6), and one renderer needs no `Vary`."""
        return {}

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        """Check the method first: 405 comes before 401, because the methods of a path are no secret.

        DRF's own steps without formats, versions and throttles, which are not used here: on a read they cost as much as
        authentication without its statement.
        """
        if (request.method or "").lower() not in self.action_map:
            raise MethodNotAllowed(headers={"Allow": ", ".join(self.allowed_methods)})
        request.accepted_renderer, request.accepted_media_type = self.perform_content_negotiation(request)
        self.perform_authentication(request)
        self.check_permissions(request)

    def http_method_not_allowed(self, request: object, *args: object, **kwargs: object) -> NoReturn:
        raise MethodNotAllowed(headers={"Allow": ", ".join(self.allowed_methods)})

    def validated_fields(self) -> Arguments:
        """Return the validated fields of the body, or else of the query, that the contract of the action declares."""
        contract: Contract = getattr(self, self.action).contract
        return (
            self.valid(contract.body) if contract.body else self.valid_query(contract.query or serializers.Serializer)
        )

    def valid(self, shape: Shape) -> Arguments:
        """Validate the body and return its fields. Raises ValidationFailed, which names every invalid field."""
        return self._checked(shape, self.request.data)

    def valid_query(self, shape: Shape) -> Arguments:
        """Validate the query string, likewise."""
        return self._checked(shape, query_parameters(self.request))

    def _checked(self, shape: Shape, data: object) -> dict[str, object]:
        try:
            return dict(_serializer_of(shape).run_validation(data))
        except serializers.ValidationError as problem:
            raise ValidationFailed(details=_messages(problem.detail)) from None


@cache
def _serializer_of(shape: Shape) -> serializers.BaseSerializer[object]:
    """Return one serializer per class for all requests and threads, because creating one copies all its fields.

    So a serializer keeps nothing of a request: it has no context, no initial data and no instance.
    """
    return shape()


def _messages(errors: object, path: str = "") -> dict[str, list[str]]:
    """Flatten nested serializer errors to a map from field path to messages."""
    flat: dict[str, list[str]] = {}
    if isinstance(errors, Mapping):
        for name, inner in errors.items():
            flat.update(_messages(inner, f"{path}.{name}" if path else str(name)))
    elif isinstance(errors, list) and errors and isinstance(errors[0], Mapping | list):
        for index, inner in enumerate(errors):
            if inner:
                flat.update(_messages(inner, f"{path}[{index}]"))
    else:
        flat[path] = [str(message) for message in (errors if isinstance(errors, list) else [errors])]
    return flat

"""What every view set of the API stands on: validate, act, answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.viewsets import ViewSet

from identity_platform.api.errors import ApiError, MethodNotAllowed, ValidationFailed
from identity_platform.api.parsers import query_parameters

View = TypeVar("View", bound=Callable[..., Any])
Shape = type[serializers.BaseSerializer[Any]]


@dataclass(frozen=True)
class Contract:
    """What an endpoint takes, gives and rejects: read by the OpenAPI generator, so the document cannot drift far."""

    body: Shape | None = None
    query: Shape | None = None
    returns: Mapping[int, Shape | None] = field(default_factory=dict)
    errors: Sequence[type[ApiError]] = ()
    # "required": a Bearer token; "optional": works without; "none": never looks at one.
    token: str = "required"
    headers: Mapping[str, str] = field(default_factory=dict)
    answer_headers: Mapping[str, str] = field(default_factory=dict)
    # Of every response but 401: a limit is counted as soon as the caller is known.
    limit_headers: Mapping[str, str] = field(default_factory=dict)
    # Also for a session that proves less than the policy in force asks for: to enroll a factor, or to sign out.
    any_level: bool = False
    # Rows of the action table (userflow.sessions.assurance) that the endpoint asks, always or for some bodies.
    assurance: Sequence[str] = ()


def endpoint(
    body: Shape | None = None,
    *,
    query: Shape | None = None,
    returns: Mapping[int, Shape | None],
    errors: Sequence[type[ApiError]] = (),
    token: str = "required",
    headers: Mapping[str, str] | None = None,
    answer_headers: Mapping[str, str] | None = None,
    limit_headers: Mapping[str, str] | None = None,
    any_level: bool = False,
    assurance: str | Sequence[str] = (),
) -> Callable[[View], View]:
    """Declare an action's contract. The first line of its docstring is the summary in the API document.

    `errors` names the errors beyond those that any endpoint has (bad body, token, permission, limits, faults);
    `headers`, `answer_headers` and `limit_headers` map a header's name to what it means.
    """

    def declare(action: View) -> View:
        action.contract = Contract(  # type: ignore[attr-defined]  # functions carry attributes, typing does not know
            body,
            query,
            returns,
            errors,
            token,
            headers or {},
            answer_headers or {},
            limit_headers or {},
            any_level,
            (assurance,) if isinstance(assurance, str) else tuple(assurance),
        )
        return action

    return declare


class ApiViewSet(ViewSet):
    """A DRF view set that rejects unknown methods before it asks who calls, and validates by serializers."""

    http_method_names = ["get", "post", "put", "patch", "delete", "head"]
    format_kwarg = None

    @property
    def default_response_headers(self) -> dict[str, str]:
        """None: `Allow` belongs to 405 (RFC 9110 section 15.5.6), and there is one renderer, so nothing varies."""
        return {}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """405 comes before 401: whether a path takes a method is no secret.

        DRF's own steps but for those that mean nothing here (formats, versions, throttles): on a read they cost as much as
        the check of the caller does without its statement.
        """
        if (request.method or "").lower() not in self.action_map:
            raise MethodNotAllowed(headers={"Allow": ", ".join(self.allowed_methods)})
        request.accepted_renderer, request.accepted_media_type = self.perform_content_negotiation(request)
        self.perform_authentication(request)
        self.check_permissions(request)

    def http_method_not_allowed(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        raise MethodNotAllowed(headers={"Allow": ", ".join(self.allowed_methods)})

    def valid(self, shape: Shape) -> dict[str, Any]:
        """The body's members that `shape` knows, validated; 400 names every member that is missing or wrong."""
        return self._checked(shape, self.request.data)

    def valid_query(self, shape: Shape) -> dict[str, Any]:
        """The same for the query string."""
        return self._checked(shape, query_parameters(self.request))

    def _checked(self, shape: Shape, data: Any) -> dict[str, Any]:
        try:
            return dict(_kept(shape).run_validation(data))
        except serializers.ValidationError as problem:
            raise ValidationFailed(details=_messages(problem.detail)) from None


_shapes: dict[Shape, serializers.BaseSerializer[Any]] = {}


def _kept(shape: Shape) -> serializers.BaseSerializer[Any]:
    """One serializer of each shape for all requests and threads: making one copies all its fields.

    So a shape keeps nothing of a request: it has no context, no initial data and no instance.
    """
    if shape not in _shapes:
        _shapes[shape] = shape()
    return _shapes[shape]


def _messages(found: Any, path: str = "") -> dict[str, list[str]]:
    """Nested serializer errors as one flat map from member path to its messages."""
    flat: dict[str, list[str]] = {}
    if isinstance(found, Mapping):
        for name, inner in found.items():
            flat.update(_messages(inner, f"{path}.{name}" if path else str(name)))
    elif isinstance(found, list) and found and isinstance(found[0], Mapping | list):
        for index, inner in enumerate(found):
            if inner:
                flat.update(_messages(inner, f"{path}[{index}]"))
    else:
        flat[path] = [str(message) for message in (found if isinstance(found, list) else [found])]
    return flat

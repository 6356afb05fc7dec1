"""The API document, and whether it states a response."""

import re
from functools import cache
from typing import Any

import orjson
from django.http import HttpRequest
from django.urls import Resolver404, resolve

from identity_platform.api.app_parts import is_oauth
from identity_platform.api.documents import PARTS, openapi

__all__ = ["PARTS"]

# Errors that no operation lists, since any path can return them: the description of the document names them.
EVERYWHERE = {("path_not_found", 404), ("not_found", 404), ("method_not_allowed", 405)}
_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")


@cache
def document() -> dict[str, Any]:
    """As it is served; needs no database, so the operations are known when tests are collected."""
    return dict(orjson.loads(openapi(HttpRequest()).content))


@cache
def part(name: str) -> dict[str, Any]:
    """A part of the document as it is served."""
    return dict(orjson.loads(openapi(HttpRequest(), name).content))


def resolved(content: dict[str, Any]) -> dict[str, Any]:
    """Return the component that a reference names, or else the content itself."""
    if "$ref" not in content:
        return content
    _, kind, name = content["$ref"].rsplit("/", 2)
    return dict(document()["components"][kind][name])


def fields_of(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the object that a schema describes: itself, the first of several choices, or all parts of it together."""
    found = resolved(schema)
    for choice in (*found.get("oneOf", []), *found.get("anyOf", [])):
        if "properties" in (chosen := fields_of(choice)):
            return chosen
    parts = [fields_of(part) for part in found.get("allOf", [])] + [found]
    properties = {name: field for part in parts for name, field in part.get("properties", {}).items()}
    required = [name for part in parts for name in part.get("required", [])]
    return {**found, "properties": properties, "required": required} if properties else found


def responses_of(operation: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the responses of an operation by status, without references."""
    return {status: resolved(response) for status, response in operation["responses"].items()}


@cache
def documented_codes(method: str, path: str, status: int) -> frozenset[str] | None:
    """Return the codes of an operation's errors with this status; None for what is no operation or no error body."""
    operation = document()["paths"].get(path, {}).get(method.lower())
    if operation is None:
        return None
    response = responses_of(operation).get(str(status))
    if response is None:
        return frozenset()
    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    return frozenset(_enum_of_code(resolved(schema))) or None


def _enum_of_code(schema: dict[str, Any]) -> list[str]:
    for part in schema.get("allOf", [schema]):
        for name, field in part.get("properties", {}).items():
            if name in ("code", "error") and (found := field.get("enum") or _enum_of_code(field)):
                return list(found)
    return []


def undocumented_code(method: str, path: str, status: int, body: object) -> str | None:
    """Return the code of an error that the document does not list for the operation at `path`."""
    if status < 400 or not isinstance(body, dict):
        return None
    try:
        route = resolve(path).route
    except Resolver404:
        return None
    codes = documented_codes(method, "/" + _PARAMETER.sub(r"{\1}", route), status)
    problem = body.get("error")
    if isinstance(problem, dict):
        shown = problem.get("code")
    elif is_oauth(path):
        shown = problem  # `code` is its cause
    else:
        shown = body.get("code", problem)
    return None if codes is None or shown in codes or (shown, status) in EVERYWHERE else f"{status} {shown}"

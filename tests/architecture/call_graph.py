"""Which functions of the platform a function refers to, directly or through others, by its syntax.

A reference counts as a call: actions are passed to `partial`, `staticmethod` and decorators. A name is resolved in the module
that defines the function, `self.name` in the class of the page or endpoint, so an inherited method calls the methods of the
subclass. What is passed as an argument, or chosen at run time, is not followed.
"""

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

PACKAGES = ("identity_platform", "tenants", "userflow", "registry", "mfa", "federation", "openid", "console", "tests")


class Node(NamedTuple):
    """A function, and the class of the object on which it is called."""

    function: FunctionType
    owner: type | None = None


def reachable(start: Callable[..., Any], owner: type | None = None) -> set[FunctionType]:
    """Return every function of the platform that `start` refers to, and `start` itself."""
    seen: set[Node] = set()
    waiting = list(_nodes(start, owner))
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += _references(node)
    return {node.function for node in seen}


def _nodes(value: object, owner: type | None = None) -> Iterator[Node]:
    """Yield the functions behind a value: of a method, a property, a partial, a decorated function, a class."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    elif isinstance(value, functools.cached_property):
        value = value.func
    if isinstance(value, functools.partial):
        yield from _nodes(value.func)
    elif inspect.ismethod(value):
        yield from _nodes(value.__func__, value.__self__ if isinstance(value.__self__, type) else type(value.__self__))
    elif isinstance(value, type):
        # Creating an object runs these.
        for name in ("__init__", "__post_init__", "__enter__", "__call__"):
            if _is_ours(method := inspect.getattr_static(value, name, None)):
                yield from _nodes(method, value)
    elif isinstance(value, FunctionType):
        while isinstance(inner := getattr(value, "__wrapped__", None), FunctionType):
            if _is_ours(value):
                yield Node(value, owner)
            value = inner
        if _is_ours(value):
            yield Node(value, owner)


def _is_ours(value: object) -> bool:
    return isinstance(value, FunctionType) and value.__module__.partition(".")[0] in PACKAGES


@functools.cache
def _references(node: Node) -> tuple[Node, ...]:
    function, owner = node
    scope = {**function.__globals__, **_closure_of(function)}
    found: list[Node] = []
    for part in ast.walk(_tree(function)):
        if isinstance(part, ast.Name):
            found += _nodes(scope.get(part.id))
        elif isinstance(part, ast.Attribute):
            found += _nodes_of_attribute(part, scope, function, owner)
    return tuple(found)


def _nodes_of_attribute(
    part: ast.Attribute, scope: dict[str, Any], function: FunctionType, owner: type | None
) -> Iterator[Node]:
    base = part.value
    if isinstance(base, ast.Name) and base.id in ("self", "cls") and owner is not None:
        yield from _nodes(inspect.getattr_static(owner, part.attr, None), owner)
    elif isinstance(base, ast.Call) and isinstance(base.func, ast.Name) and base.func.id == "super" and owner:
        for parent in owner.__mro__:
            # Of every parent, as the order of the classes decides which is next.
            if part.attr in vars(parent) and vars(parent)[part.attr] is not function:
                yield from _nodes(vars(parent)[part.attr], owner)
    elif isinstance(target := _value_of(base, scope), ModuleType | type):
        yield from _nodes(inspect.getattr_static(target, part.attr, None), target if isinstance(target, type) else None)


def _value_of(base: ast.expr, scope: dict[str, Any]) -> object:
    """Return the module or class that an expression of dots names."""
    if isinstance(base, ast.Name):
        return scope.get(base.id)
    if isinstance(base, ast.Attribute) and isinstance(target := _value_of(base.value, scope), ModuleType | type):
        return inspect.getattr_static(target, base.attr, None)
    return None


def _closure_of(function: FunctionType) -> dict[str, object]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if name != "__class__"}


@functools.cache
def _tree(function: FunctionType) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, IndentationError):
        # A lambda inside an expression: all of its line counts.
        return ast.Module([], [])


def mentions(function: FunctionType) -> list[object]:
    """Return the values of the names that the function mentions."""
    scope = {**function.__globals__, **_closure_of(function)}
    return [scope[part.id] for part in ast.walk(_tree(function)) if isinstance(part, ast.Name) and part.id in scope]


def action_names(start: Callable[..., Any], owner: type | None, actions: type[Any]) -> set[Any]:
    """Return the members of an enumeration that a function mentions, directly or through others."""
    found: set[Any] = set()
    for function in reachable(start, owner):
        for part in ast.walk(_tree(function)):
            if isinstance(part, ast.Attribute) and _value_of(part.value, function.__globals__) is actions:
                found.add(getattr(actions, part.attr))
    return found


def takes_forms(page: FunctionType) -> bool:
    """Return whether a page that is a function reads a form, or is for POST only."""
    parts = (part for function in reachable(page) if _is_of_a_page(function) for part in ast.walk(_tree(function)))
    return any(
        (isinstance(part, ast.Attribute) and part.attr == "POST") or (isinstance(part, ast.Name) and "POST" in part.id)
        for part in parts
    )


def _is_of_a_page(function: FunctionType) -> bool:
    # The frame looks at forms of every page, to find those of another tenant.
    return function.__module__.startswith(("console.", "tests.")) and not function.__module__.startswith(
        "console.frame."
    )

"""Functions of apps whose results a layer below needs, which cannot import them. What returns nothing is a signal."""

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Hook(Generic[Arguments, Result]):
    """A point at which a layer calls functions of the layers and apps above it, with types, unlike a signal.

    It stands where it is called. An app registers its function when it is ready (`AppConfig.ready`).
    """

    def __init__(self) -> None:
        self._functions: list[Callable[Arguments, Result]] = []

    def register(self, function: Callable[Arguments, Result]) -> None:
        """Let each call include this function."""
        self._functions.append(function)

    def call(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> list[Result]:
        """Call every function, in the order of the apps; return the results. An error of one ends the call."""
        return [function(*args, **kwargs) for function in self._functions]

"""Find the pattern of a path in a table. Django tries one regular expression after the other, up to a hundred for a request."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from django.urls import ResolverMatch, URLPattern, URLResolver
from django.urls.resolvers import RoutePattern


class PathIndex(URLResolver):
    """Patterns of which only those are tried that begin like the path; all else, `reverse` included, is Django's.

    A path without converters finds its own pattern, also if an earlier one with converters matches it. Its match is the same
    object for all requests: nothing changes one.
    """

    def __init__(
        self, route: str, patterns: Sequence[URLPattern | URLResolver], kwargs: dict[str, Any] | None = None
    ) -> None:
        super().__init__(RoutePattern(route, is_endpoint=False), patterns, kwargs)

    @cached_property
    def _resolvers(self) -> tuple[dict[str, URLResolver], dict[str, URLResolver], URLResolver]:
        """Return resolvers by whole path, by first segment, and the one of all other paths."""
        paths: dict[str, URLResolver] = {}
        segments: dict[str, list[URLPattern | URLResolver]] = {}
        others: list[URLPattern | URLResolver] = []
        for pattern in self.url_patterns:
            route = str(pattern.pattern)
            if "<" not in route and isinstance(pattern, URLPattern):
                paths.setdefault(route, self._resolver_of([pattern]))
                continue
            segment, slash, _ = route.partition("/")
            if "<" in segment or not (slash or isinstance(pattern, URLPattern)):
                # It may match paths of every segment, after those that stand before it.
                others.append(pattern)
                for patterns in segments.values():
                    patterns.append(pattern)
            else:
                segments.setdefault(segment, others.copy()).append(pattern)
        return (
            paths,
            {segment: self._resolver_of(patterns) for segment, patterns in segments.items()},
            self._resolver_of(others),
        )

    def _resolver_of(self, patterns: list[URLPattern | URLResolver]) -> URLResolver:
        return URLResolver(self.pattern, patterns, self.default_kwargs)

    @cached_property
    def _matches(self) -> dict[str, ResolverMatch]:
        """Return the matches of whole paths, none if they depend on what the route of this index captures."""
        if self.pattern.converters:
            return {}
        paths, _, _ = self._resolvers
        return {(path := f"{self.pattern}{rest}"): resolver.resolve(path) for rest, resolver in paths.items()}

    def resolve(self, path: str) -> ResolverMatch:
        """Return the match of a path. Raises Resolver404."""
        if (known := self._matches.get(path)) is not None:
            return known
        match = self.pattern.match(path)
        rest = match[0] if match else ""
        paths, segments, others = self._resolvers
        resolver = paths.get(rest) or segments.get(rest.partition("/")[0]) or others
        return resolver.resolve(path)

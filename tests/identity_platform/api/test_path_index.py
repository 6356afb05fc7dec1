"""The table of paths finds what Django finds by trying one pattern after the other."""

import re
from collections.abc import Iterator

import pytest
from django.urls import Resolver404, URLPattern, URLResolver, get_resolver, path
from django.urls.resolvers import RegexPattern

from identity_platform.api.path_index import PathIndex

UNKNOWN = ["nothing", "uflow", "uflow/", "t", "t/", "t/acme/x/y", "uflow/admin/users/", "authmgr/profile/", "docs/a/b"]


def stock(resolver: URLResolver) -> URLResolver:
    """Return the same patterns without tables."""
    patterns = [stock(one) if isinstance(one, URLResolver) else one for one in resolver.url_patterns]
    return URLResolver(resolver.pattern, patterns, resolver.default_kwargs, resolver.app_name, resolver.namespace)


def routes(resolver: URLResolver, before: str = "") -> Iterator[str]:
    for pattern in resolver.url_patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield route
        else:
            yield from routes(pattern, route)


def outcome(resolver: URLResolver, address: str) -> object:
    try:
        match = resolver.resolve(address)
    except Resolver404:
        return None
    return match.func, match.args, match.kwargs, match.route, match.view_name, match.captured_kwargs


@pytest.mark.parametrize("urlconf", ["identity_platform.urls", "openid.domain_urls"])
def test_every_path_has_the_match_of_django(urlconf: str) -> None:
    indexed = get_resolver(urlconf)
    plain = stock(indexed)
    addresses = {"/" + re.sub(r"<[^>]+>", "7c9e6679-7425-40de-944b-e07fc1f90ae7", route) for route in routes(indexed)}
    addresses |= {"/" + re.sub(r"<[^>]+>", "some-name", route) for route in routes(indexed)}
    addresses = {re.sub(r"[\\^$]|\(.*\)", "", address) for address in addresses} | {"/" + rest for rest in UNKNOWN}
    assert len(addresses) > 50
    for address in sorted(addresses):
        assert outcome(indexed, address) == outcome(plain, address), address


def test_patterns_that_begin_alike_are_tried_in_their_order() -> None:
    views = [lambda request, number=number, **named: number for number in range(5)]
    patterns = [
        path("a/<str:name>", views[0]),
        path("<str:first>/b", views[1]),
        path("a/b/<str:name>", views[2]),
        path("a/<path:rest>", views[3]),
        path("<path:rest>", views[4]),
    ]
    index, plain = PathIndex("", patterns), URLResolver(RegexPattern(r""), patterns)
    for address in ("a/b", "a/b/c", "c/b", "a/b/c/d", "x", "a", ""):
        assert outcome(index, address) == outcome(plain, address)

"""Connections to the primary that Sentinels name, for a Valkey or Redis with replicas.

The URL is `redis+sentinel://[user:password@]host[:port],host[:port]/SERVICE[/DATABASE]`, with `rediss+sentinel` for TLS.
`sentinel_username` and `sentinel_password` in its query are for the Sentinels, if they have a password of their own.
"""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

SCHEMES = ("redis+sentinel", "rediss+sentinel")
SENTINEL_PORT = 26379
QUERY = {"sentinel_username": "username", "sentinel_password": "password"}


def names_sentinels(url: str) -> bool:
    """Return whether the URL names Sentinels, not a server."""
    return url.partition("://")[0] in SCHEMES


def sentinel_pool(url: str, **options: object) -> SentinelConnectionPool:
    """Return a pool of connections to the primary. Each new one asks the Sentinels which server that is.

    `options` are those of a connection to the server; its timeouts apply to the Sentinels too. Raises ValueError.
    """
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    login, _, hosts = authority.rpartition("@")
    service, _, database = path.partition("/")
    unknown = set(parse_qs(query)) - set(QUERY)
    if not service or unknown or (database and not database.isdecimal()):
        raise ValueError(
            f"REDIS_URL must be like {SCHEMES[0]}://host:26379,host:26379/SERVICE/0; the query can have {', '.join(QUERY)}."
        )
    user, _, password = login.partition(":")
    to_server = options | {"db": int(database or 0), "username": unquote(user) or None}
    to_server |= {"password": unquote(password) or None, "ssl": scheme.startswith("rediss")}
    to_sentinels = {name: value for name, value in options.items() if name.startswith("socket_")}
    to_sentinels |= {QUERY[name]: values[0] for name, values in parse_qs(query).items()}
    # The next Sentinel is asked at once instead.
    to_sentinels |= {"retry": Retry(NoBackoff(), 0), "ssl": scheme.startswith("rediss")}
    addresses = [_host_and_port(part) for part in hosts.split(",")]
    sentinels = Sentinel(addresses, sentinel_kwargs=to_sentinels)  # type: ignore[no-untyped-call]
    return SentinelConnectionPool(service, sentinels, **to_server)  # type: ignore[no-untyped-call]


def _host_and_port(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(f"REDIS_URL names no host in {text!r}.")
    return parts.hostname, parts.port or SENTINEL_PORT

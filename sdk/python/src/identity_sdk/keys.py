"""The published keys of an issuer (RFC 8414, RFC 7517), fetched by one thread at a time."""

import threading
from collections.abc import Mapping
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import httpx2
import jwt

from identity_sdk.transport import checked_url

# Seconds in which keys are used without another fetch, and in which they are used if fetching fails.
FRESH, USABLE = 300, 900
# Seconds between two attempts to fetch, whether they fail or not: a caller can make up key ids.
COOLDOWN = 30
TIMEOUT = 10
UNREADABLE = (httpx2.HTTPError, httpx2.InvalidURL, jwt.PyJWTError, ValueError, RecursionError)


class KeysUnavailable(Exception):
    """The key may exist, but the keys cannot be fetched at the moment."""


class PublishedKeys:
    """The keys by their ids. A lookup waits for the network only in the one thread that fetches."""

    def __init__(self, issuer: str, jwks_uri: str | None, http: httpx2.Client) -> None:
        self._issuer, self._uri, self._http = issuer, jwks_uri, http
        self._fetching = threading.Lock()
        # Replaced as a whole, so it is read without a lock.
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._fetched = self._attempted = float("-inf")

    def find(self, kid: str) -> jwt.PyJWK | None:
        """Return the key, or None if the issuer has none with this id. Raises KeysUnavailable."""
        keys = self._keys
        if kid in keys and monotonic() - self._fetched < FRESH:
            return keys[kid]
        if monotonic() - self._attempted >= COOLDOWN and self._fetching.acquire(blocking=False):
            try:
                self._attempted = monotonic()
                self._keys = keys = self._fetch()
                self._fetched = monotonic()
            except UNREADABLE as error:
                if kid not in keys:
                    raise KeysUnavailable from error
            finally:
                self._fetching.release()
        if monotonic() - self._fetched < USABLE:
            if kid in keys:
                return keys[kid]
            if self._fetched >= self._attempted:
                return None
        # Another thread is fetching, or the last attempt has failed.
        raise KeysUnavailable

    def _fetch(self) -> Mapping[str, jwt.PyJWK]:
        if self._uri is None:
            place = urlsplit(self._issuer)
            metadata = self._object(
                f"{place.scheme}://{place.netloc}/.well-known/oauth-authorization-server{place.path}"
            )
            if metadata.get("issuer") != self._issuer:
                raise ValueError("The metadata is of another issuer.")
            self._uri = checked_url("jwks_uri", metadata.get("jwks_uri", ""))
        listed = self._object(self._uri).get("keys")
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
            raise ValueError("The keys are not a list of objects.")
        # Raises PyJWKSetError if none is usable.
        return {key.key_id: key for key in jwt.PyJWKSet(listed).keys if isinstance(key.key_id, str)}

    def _object(self, url: str) -> dict[str, Any]:
        said = self._http.get(url, timeout=TIMEOUT, follow_redirects=False).raise_for_status().json()
        if not isinstance(said, dict):
            raise ValueError("The response is not a JSON object.")
        return said

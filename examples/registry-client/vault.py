"""The key of the payment service: kept in the registry, read when it is needed, rotated without downtime."""

from collections.abc import Callable
from typing import Any

import httpx2

from identity_sdk import ClientCredentials, Registry, ServiceCredential
from identity_sdk.errors import json_of

SERVICE, NAME = "Payments", "Live key"


class Payments:
    """Calls the payment service with the key of the registry. `tell` gets what happens, without secrets."""

    def __init__(self, platform: str, credentials: ClientCredentials, tell: Callable[[str], object]) -> None:
        self._registry = Registry(platform, credentials)
        self._platform = httpx2.Client(base_url=f"{platform}/exsvc/api/v1", auth=credentials, timeout=30)
        self._tell = tell
        self._key: ServiceCredential | None = None

    # --- configuration
    def key(self, *, again: bool = False) -> ServiceCredential:
        """Return the key, read from the registry once, or `again` after the service has rejected it."""
        if self._key is None or again:
            self._key = self._registry.credential(SERVICE, NAME)
            self._tell(f"Read the credential “{NAME}” of the service “{SERVICE}” from the registry")
        return self._key

    # --- end of configuration

    def charge(self) -> None:
        """Make a call that needs the key."""
        said = self._call("POST", "/charges")
        self._tell(f"Charged a card ({said['charge']}) with {said['key']}")

    def rotate(self) -> None:
        """Replace the key. The order matters: a new key, then the registry, and the old key only when nothing needs it."""
        new = self._call("POST", "/keys")
        old = new["replaces"]
        self._tell(f"The payment service has issued {new['id']}; {old} still works")
        stored = self.key()
        (service,) = json_of(self._platform.get("/services", params={"name": SERVICE}))["services"]
        path = f"/services/{service['id']}/credentials/{stored.id}"
        json_of(self._platform.put(path, json={"secret": new["secret"]}))
        self._tell(f"Stored {new['id']} in the registry")
        self.key(again=True)
        self._call("DELETE", f"/keys/{old}")
        self._tell(f"Revoked {old} at the payment service")

    def _call(self, method: str, path: str) -> Any:
        response = self._send(method, path, self.key())
        if response.status_code == 401:
            # Another instance may have rotated it.
            self._tell("The payment service has rejected the key")
            response = self._send(method, path, self.key(again=True))
        return response.raise_for_status().json()

    def _send(self, method: str, path: str, key: ServiceCredential) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {key.secret}"}
        return httpx2.request(method, f"{key.base_url}{path}", headers=headers, timeout=30)

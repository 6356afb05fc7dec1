"""Where the console's sessions are kept (SESSION_ENGINE): Django's table store, with names hashed and contents sealed."""

import base64
import binascii
from typing import TYPE_CHECKING

from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.contrib.sessions.base_session import AbstractBaseSession
from django.utils.timezone import now

from identity_platform.crypto import SealBroken, SealContext, hash_token, seal, unseal
from tenants import keys

if TYPE_CHECKING:
    from console.frame.access import Context
    from console.signin.models import BrowserSession


class SessionStore(DatabaseStore):
    @classmethod
    def get_model_class(cls) -> "type[BrowserSession]":
        from console.signin.models import BrowserSession

        return BrowserSession

    def load(self) -> "Context":
        """Return the data; for an unknown or expired key nothing, and a new key with the next write."""
        name = self.session_key
        row = self.model.objects.filter(session_key=_hashed(name), expire_date__gt=now()).first() if name else None
        if row is not None:
            try:
                sealed = base64.b64decode(row.session_data, validate=True)
                content = unseal(sealed, data_key=keys.platform_key(), context=_place(row.session_key))
                return dict(self.serializer().loads(content))
            except (SealBroken, binascii.Error):
                # Sealed with another key: treat it as missing.
                pass
        self._session_key = None
        return {}

    def exists(self, session_key: str | None = None) -> bool:
        return bool(session_key and self.model.objects.filter(session_key=_hashed(session_key)).exists())

    def create_model_instance(self, data: "Context") -> AbstractBaseSession:
        stored = _hashed(self._get_or_create_session_key())  # type: ignore[attr-defined]  # left out of the stubs
        content = self.serializer().dumps(data)
        sealed = seal(content, data_key=keys.platform_key(), context=_place(stored))
        return self.model(
            session_key=stored,
            session_data=base64.b64encode(sealed).decode("ascii"),
            expire_date=self.get_expiry_date(),
        )

    def delete(self, session_key: str | None = None) -> None:
        """Delete a session, this one by default."""
        name = session_key or self.session_key
        if name is not None:
            self.model.objects.filter(session_key=_hashed(name)).delete()


def _hashed(name: str) -> str:
    """Return the hash that the table stores; its column holds 160 bits."""
    return hash_token(name).hex()[:40]


def _place(stored: str) -> SealContext:
    return SealContext(tenant="platform", table="console_browsersession", column="session_data", row=stored)

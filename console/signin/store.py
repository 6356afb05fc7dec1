"""Where the console's sessions are kept (SESSION_ENGINE): Django's table store, with names hashed and contents sealed."""

import base64
import binascii
from typing import Any

from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.utils.timezone import now

from identity_platform.crypto import SealBroken, SealContext, hash_token, seal, unseal
from tenants import keys


class SessionStore(DatabaseStore):
    """One browser's session."""

    @classmethod
    def get_model_class(cls) -> Any:
        from console.signin.models import BrowserSession

        return BrowserSession

    def load(self) -> dict[str, Any]:
        """The content; nothing, and a new name with the next write, for a name that nobody has or that is over."""
        name = self.session_key
        row = self.model.objects.filter(session_key=_hashed(name), expire_date__gt=now()).first() if name else None
        if row is not None:
            try:
                sealed = base64.b64decode(row.session_data, validate=True)
                content = unseal(sealed, data_key=keys.platform_key(), context=_place(row.session_key))
                return dict(self.serializer().loads(content))
            except (SealBroken, binascii.Error):
                # Of another database or another key: as good as not there.
                pass
        self._session_key = None
        return {}

    def exists(self, session_key: str | None = None) -> bool:
        """Whether a session has this name."""
        return bool(session_key and self.model.objects.filter(session_key=_hashed(session_key)).exists())

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        """The row to write."""
        stored = _hashed(self._get_or_create_session_key())  # type: ignore[attr-defined]  # left out of the stubs
        content = self.serializer().dumps(data)
        sealed = seal(content, data_key=keys.platform_key(), context=_place(stored))
        return self.model(
            session_key=stored,
            session_data=base64.b64encode(sealed).decode("ascii"),
            expire_date=self.get_expiry_date(),
        )

    def delete(self, session_key: str | None = None) -> None:
        """Forget a session, this one unless another is named."""
        name = session_key or self.session_key
        if name is not None:
            self.model.objects.filter(session_key=_hashed(name)).delete()


def _hashed(name: str) -> str:
    """What stands in the table; 160 bits are what its column holds."""
    return hash_token(name).hex()[:40]


def _place(stored: str) -> SealContext:
    return SealContext(tenant="platform", table="console_browsersession", column="session_data", row=stored)

"""Documents of providers, cached in the process: read again when they are old, and on demand, but not too often."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from uuid import UUID

from django.conf import settings

from federation.upstream.errors import Reason, UpstreamError

FRESH_SECONDS: Final = 3600.0
# A provider's host may be slow or hostile, and anyone can send tokens with invented key ids: so much time between two reads.
AGAIN_SECONDS: Final = 30.0
# While there is no document at all: so soon an admin who has corrected something sees the effect.
FAILED_SECONDS: Final = 5.0
MOST_DOCUMENTS: Final = 1000
# Beside the time of a call: the others wait for the first one.
_WAIT_SECONDS: Final = 2.0

Document = TypeVar("Document")


@dataclass(slots=True)
class _Entry(Generic[Document]):
    document: Document | None = None
    error: UpstreamError | None = None
    read_at: float = float("-inf")
    tried_at: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)

    def current(self, moment: float) -> Document | None:
        return self.document if moment - self.read_at < FRESH_SECONDS else None


class DocumentCache(Generic[Document]):
    """The documents of the connections that have used them last, by connection and address.

    The connection is part of the key, so no tenant gets what another one has read, perhaps from a host that only the
    authorities of that tenant vouch for.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[UUID, str], _Entry[Document]] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self,
        connection_id: UUID,
        address: str,
        read: Callable[[], Document],
        *,
        suffices: Callable[[Document], bool] = lambda document: True,
    ) -> Document:
        """Return the document, read by `read` if there is no fresh one or if it does not suffice.

        It is read once in AGAIN_SECONDS at most; in between a document that does not suffice is returned as it is. Without
        any document an error is raised again for FAILED_SECONDS. Raises UpstreamError.
        """
        entry = self._entry((connection_id, address))
        document = entry.current(time.monotonic())
        if document is not None and suffices(document):
            return document
        if not entry.lock.acquire(timeout=settings.FEDERATION_TIMEOUT_SECONDS + _WAIT_SECONDS):
            raise UpstreamError(Reason.SERVER_BUSY)
        try:
            return self._read(entry, read, suffices)
        finally:
            entry.lock.release()

    def _read(
        self, entry: _Entry[Document], read: Callable[[], Document], suffices: Callable[[Document], bool]
    ) -> Document:
        moment = time.monotonic()
        document = entry.current(moment)
        if document is not None and suffices(document):
            return document
        if document is not None and moment - entry.tried_at < AGAIN_SECONDS:
            return document
        if entry.error is not None and moment - entry.tried_at < FAILED_SECONDS:
            raise UpstreamError(entry.error.reason, expected=entry.error.expected, received=entry.error.received)
        entry.tried_at = moment
        try:
            entry.document, entry.error, entry.read_at = read(), None, moment
        except UpstreamError as problem:
            entry.error = problem
            if document is None:
                raise
            # What was read within the last hour is valid until then: the provider's host may be down for a moment.
            return document
        return entry.document

    def _entry(self, key: tuple[UUID, str]) -> _Entry[Document]:
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            if len(self._entries) > MOST_DOCUMENTS:
                self._entries.popitem(last=False)
            return entry

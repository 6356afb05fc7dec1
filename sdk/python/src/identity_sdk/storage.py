"""Where the tokens of a session are kept."""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Tokens:
    """The tokens of one session; `expires_at` is the end of the access token in seconds since 1970."""

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_at: float


class TokenStorage(Protocol):
    """Keeps the tokens of one user, for example in a row of a database, in Redis or in a key ring.

    A storage that several processes use also has a method `exclusively()`. It returns a context manager that no other
    process can enter for the same user at the same time, such as a locked row (`select_for_update()` in a transaction) or a
    Redis lock, and inside it `load()` must read the current tokens. Every `save()` is called inside it. Otherwise two
    processes refresh with the same refresh token, one stores an outdated one, and the session is lost. So a session that is
    read once at the start of a request, or
    kept in a cookie, is no storage for tokens.
    """

    def load(self) -> Tokens | None:
        """Return the tokens, or None if the user is signed out."""

    def save(self, tokens: Tokens | None) -> None:
        """Replace the tokens; None signs the user out."""


class MemoryStorage:
    """Keeps the tokens until the process ends."""

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def load(self) -> Tokens | None:
        return self._tokens

    def save(self, tokens: Tokens | None) -> None:
        self._tokens = tokens

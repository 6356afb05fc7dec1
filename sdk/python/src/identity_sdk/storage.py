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
    """Keeps the tokens of one user, for example in the session of a web framework or in a key ring."""

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

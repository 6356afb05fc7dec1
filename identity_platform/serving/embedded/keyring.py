import base64
import contextlib
import os
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Keys:
    """The values of the settings SECRET_KEY and ENCRYPTION_KEYS (`id:base64` pairs, the first one seals)."""

    secret_key: str
    encryption_keys: str


def keys(var: Path | str) -> Keys:
    """Read the keys of the embedded mode, made at the first call and kept under `var/keys/` (0700, files 0600)."""
    folder = Path(var).resolve() / "keys"
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    return Keys(
        secret_key=_stored_key(folder / "secret_key", lambda: secrets.token_urlsafe(48)),
        encryption_keys=_stored_key(
            folder / "encryption_keys", lambda: f"k1:{base64.b64encode(os.urandom(32)).decode()}"
        ),
    )


def _stored_key(file: Path, make: Callable[[], str]) -> str:
    if not file.exists():
        draft = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as content:
            content.write(make())
            content.flush()
            os.fsync(content.fileno())
        # A link fails where a rename would replace: of two first starts one wins, and both then read the same key.
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)
        draft.unlink()
    if stat.S_IMODE(file.stat().st_mode) != 0o600:
        file.chmod(0o600)
    return file.read_text(encoding="ascii").strip()

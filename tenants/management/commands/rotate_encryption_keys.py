import base64
import secrets
from argparse import ArgumentParser

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from identity_platform.audit.writer import record_for_platform
from identity_platform.crypto import KeyRing, key_ring
from identity_platform.crypto.sealing import KEY_BYTES
from tenants import keys
from tenants.management import terminal


class Command(terminal.OperatorCommand):
    help = (
        "Wrap every data key under the first key of ENCRYPTION_KEYS. Stored secrets are not touched, and requests continue. "
        "After an interruption the next run does the rest. On success the other keys can be removed from ENCRYPTION_KEYS. "
        "Example: rotate_encryption_keys"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--new-key", metavar="ID", help="Only print a new key as ID:base64 for ENCRYPTION_KEYS.")
        parser.add_argument("--check", action="store_true", help="Only check that every data key can be decrypted.")
        parser.add_argument(
            "--batch", type=int, default=200, help="Data keys in one transaction (default 200; 1 to 10000)."
        )

    def handle(self, *, new_key: str | None, check: bool, batch: int, **_: object) -> None:
        if new_key:
            self._print_new_key(new_key)
        elif check:
            self._check()
        else:
            self._rotate(batch)

    def _print_new_key(self, key_id: str) -> None:
        entry = f"{key_id}:{base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}"
        if key_id in key_ring().ids:
            raise CommandError(
                f"ENCRYPTION_KEYS already has a key {key_id!r}. Choose an id that was never used.", returncode=2
            )
        try:
            KeyRing.parse(entry)
        except ImproperlyConfigured as problem:
            raise CommandError(str(problem), returncode=2) from problem
        self.stdout.write(entry)

    def _check(self) -> None:
        locked = list(keys.locked_owners())
        self._table()
        if locked:
            raise CommandError(self._names(locked))
        self.stdout.write("Every data key can be decrypted.")

    def _rotate(self, size: int) -> None:
        if not 1 <= size <= 10_000:
            raise CommandError("--batch must be between 1 and 10000.", returncode=terminal.NOT_TRIED)
        primary = key_ring().primary_id
        waiting = sum(number for key_id, number in keys.under_each_ring_key().items() if key_id != primary)
        done = 0
        failed: list[str] = []
        for batch in keys.rewrap_in_batches(size):
            done += batch.done
            failed += batch.failed
            if self.stderr.isatty():
                self.stderr.write(f"\r{done} of {waiting} data keys", ending="")
        if self.stderr.isatty() and waiting:
            self.stderr.write("")
        if done or failed:
            record_for_platform(
                "encryption_keys.rotated",
                target=("ring_key", primary),
                outcome="failed" if failed else "success",
                details={"rewrapped": done, "failed": len(failed)},
            )
        self.stdout.write(f"{terminal.counted(done, 'data key')} wrapped under {primary}.")
        self._table()
        if failed:
            raise CommandError(self._names(failed))
        self._print_unused()

    def _table(self) -> None:
        counted = keys.under_each_ring_key()
        for key_id in dict.fromkeys([*key_ring().ids, *counted]):
            missing = "" if key_id in key_ring().ids else "  (missing in ENCRYPTION_KEYS)"
            self.stdout.write(f"  {key_id:16} {counted.get(key_id, 0):>9} data keys{missing}")

    def _print_unused(self) -> None:
        used = keys.under_each_ring_key()
        unused = [key_id for key_id in key_ring().ids[1:] if key_id not in used]
        if unused:
            self.stdout.write(
                f"No data key uses {', '.join(unused)}. Remove them from ENCRYPTION_KEYS once every process has "
                f"{key_ring().primary_id} first. Keep them for backups made before today."
            )

    def _names(self, owners: list[str]) -> str:
        shown = ", ".join(owners[:20]) + (f" and {len(owners) - 20} more" if len(owners) > 20 else "")
        return f"{len(owners)} data keys cannot be decrypted with ENCRYPTION_KEYS and were not changed: {shown}."

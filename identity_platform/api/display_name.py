"""Names that mails and pages show as who they are from."""

import re
import unicodedata
from typing import Final

from identity_platform.api.fields import Text

# Controls, and characters that are not seen but change the order or the look of others.
_UNSEEN: Final = frozenset({"Cc", "Cf"})
_ALIKE: Final = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"})
# Mail programs show an address or a link in the place of the real sender. Compatibility forms such as ＠ look the same.
_ADDRESS: Final = re.compile("@|://")


def is_misleading(name: str) -> bool:
    """Return whether a name could pass for an address or a link, or has characters that are not seen."""
    return _has_unseen(name) or _ADDRESS.search(unicodedata.normalize("NFKC", name)) is not None


def is_lookalike(name: str) -> bool:
    """Return whether a name could pass for another one: by characters that are not seen, compatibility forms (NFKC), or
    letters of alphabets that share shapes (UTS #39, mixed-script confusables).
    """
    scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in name if letter.isalpha()}
    return _has_unseen(name) or unicodedata.normalize("NFKC", name) != name or len(scripts & _ALIKE) > 1


def _has_unseen(name: str) -> bool:
    return any(unicodedata.category(character) in _UNSEEN for character in name)


class DisplayName(Text):
    """A name that is no address, no link and all visible."""

    default_error_messages = {"misleading": "Send a name without `@`, `://` and invisible characters."}

    def to_internal_value(self, data: object) -> str:
        name = super().to_internal_value(data)
        if is_misleading(name):
            self.fail("misleading")
        return name

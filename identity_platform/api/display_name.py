"""Names that mails and pages show as who they are from."""

import re
import unicodedata
from typing import Final

from identity_platform.api.fields import Text

# Controls, and characters that are not seen but change the order or the look of others.
_UNSEEN: Final = frozenset({"Cc", "Cf"})
# Mail programs show an address or a link in the place of the real sender. Compatibility forms such as ＠ look the same.
_ADDRESS: Final = re.compile("@|://")


def is_misleading(name: str) -> bool:
    """Return whether a name could pass for an address or a link, or has characters that are not seen."""
    has_unseen = any(unicodedata.category(character) in _UNSEEN for character in name)
    return has_unseen or _ADDRESS.search(unicodedata.normalize("NFKC", name)) is not None


class DisplayName(Text):
    """A name that is no address, no link and all visible."""

    default_error_messages = {"misleading": "Send a name without `@`, `://` and invisible characters."}

    def to_internal_value(self, data: object) -> str:
        name = super().to_internal_value(data)
        if is_misleading(name):
            self.fail("misleading")
        return name

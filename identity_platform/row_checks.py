"""What a caller checks of a row before an action changes it.

The action calls the check in its transaction, once it has locked the row: what the check reads cannot change any more.
"""

from collections.abc import Callable

# Raises the error that rejects the change.
RowCheck = Callable[[], None]


def no_check() -> None:
    """Accept the row as it is."""

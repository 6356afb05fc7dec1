"""Responses that take whole steps of time, so that a difference of less than a step does not tell what was done.

What is known and what is unknown takes the same statements and hashes, but not to the microsecond: a row that is updated, an
index that grows. Few attempts at one user are allowed, so this need not withstand an average over thousands.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

STEP_SECONDS: Final = 0.025


@dataclass(slots=True)
class Rounding:
    """Whether the block will take whole steps."""

    rounds: bool = False


@contextmanager
def rounding(*rejections: type[Exception]) -> Iterator[Rounding]:
    """Let the block take a whole number of steps if it raises one of `rejections` or sets `rounds`.

    Enter it first: what others wait for, a connection or a lock, must not be kept meanwhile.
    """
    state, began = Rounding(), time.perf_counter()
    try:
        yield state
    except rejections:
        state.rounds = True
        raise
    finally:
        if state.rounds:
            time.sleep((began - time.perf_counter()) % STEP_SECONDS)

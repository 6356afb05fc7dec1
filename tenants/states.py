"""The life of a tenant's database: which step may follow which, and what each state allows. One table, one place."""

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """States of a tenant database mapping."""

    PROVISIONING = "provisioning"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    MIGRATING = "migrating"
    MOVING = "moving"
    FAILED = "failed"
    DELETING = "deleting"
    DELETED = "deleted"


class Purpose(StrEnum):
    """What somebody wants to enter a tenant for."""

    SIGN_IN = "sign_in"
    READ = "read"
    WRITE = "write"
    # Operators and commands look at a tenant that its own people cannot use.
    INSPECT = "inspect"
    # Operators edit, deactivate and erase users of a tenant that its own users cannot use.
    EDIT_USERS = "edit_users"


ALLOWED: Final[dict[State, frozenset[Purpose]]] = {
    State.PROVISIONING: frozenset(),
    State.ACTIVE: frozenset(Purpose),
    State.SUSPENDED: frozenset({Purpose.INSPECT, Purpose.EDIT_USERS}),
    # A migration runs in one transaction and a move copies: what is read stays right, what is written would be lost
    # or wait for locks.
    State.MIGRATING: frozenset({Purpose.READ, Purpose.INSPECT}),
    State.MOVING: frozenset({Purpose.READ, Purpose.INSPECT}),
    State.FAILED: frozenset({Purpose.INSPECT}),
    State.DELETING: frozenset(),
    State.DELETED: frozenset(),
}


def allowing(purpose: Purpose) -> list[State]:
    """Return the states that allow this."""
    return [state for state, purposes in ALLOWED.items() if purpose in purposes]


FOLLOWS: Final[dict[State, frozenset[State]]] = {
    State.PROVISIONING: frozenset({State.ACTIVE, State.FAILED, State.DELETING}),
    State.ACTIVE: frozenset({State.SUSPENDED, State.MIGRATING, State.MOVING, State.FAILED}),
    State.SUSPENDED: frozenset({State.ACTIVE, State.DELETING, State.FAILED}),
    State.MIGRATING: frozenset({State.ACTIVE, State.FAILED}),
    State.MOVING: frozenset({State.ACTIVE, State.FAILED}),
    State.FAILED: frozenset({State.ACTIVE, State.PROVISIONING, State.SUSPENDED, State.DELETING}),
    State.DELETING: frozenset({State.DELETED, State.FAILED}),
    State.DELETED: frozenset(),
}

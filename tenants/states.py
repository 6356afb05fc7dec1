"""The states of a tenant's database: allowed transitions, and what each state allows."""

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
    """Why a tenant is entered."""

    SIGN_IN = "sign_in"
    READ = "read"
    WRITE = "write"
    # Operators and commands read a tenant that its users cannot use.
    INSPECT = "inspect"
    # Operators edit, deactivate and erase users of a suspended tenant.
    EDIT_USERS = "edit_users"
    # Applications are told that the sessions of their users have ended.
    SIGN_OUT = "sign_out"
    # What has happened to the tenant's domains is recorded in its database.
    RECORD = "record"


ALLOWED: Final[dict[State, frozenset[Purpose]]] = {
    State.PROVISIONING: frozenset(),
    State.ACTIVE: frozenset(Purpose),
    State.SUSPENDED: frozenset({Purpose.INSPECT, Purpose.EDIT_USERS, Purpose.SIGN_OUT, Purpose.RECORD}),
    # During a migration writes would wait for locks; during a move they would be lost. Reads stay correct.
    State.MIGRATING: frozenset({Purpose.READ, Purpose.INSPECT}),
    State.MOVING: frozenset({Purpose.READ, Purpose.INSPECT}),
    State.FAILED: frozenset({Purpose.INSPECT}),
    State.DELETING: frozenset(),
    State.DELETED: frozenset(),
}


def allowing(purpose: Purpose) -> list[State]:
    """Return the states that allow this."""
    return [state for state, purposes in ALLOWED.items() if purpose in purposes]


class Mode(StrEnum):
    """What operators have limited the platform or one database server to (`tenants.operating_modes`)."""

    READ_ONLY = "read_only"
    MAINTENANCE = "maintenance"


# What remains allowed in a tenant whose state allows it.
ALLOWED_IN: Final[dict[Mode, frozenset[Purpose]]] = {
    Mode.READ_ONLY: frozenset({Purpose.READ, Purpose.INSPECT}),
    Mode.MAINTENANCE: frozenset({Purpose.INSPECT}),
}


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

"""Sentences of the API document about who may call an operation, from its contract and its permission classes."""

from collections.abc import Iterable

from identity_platform.api.views import Contract

NO_TOKEN = "Needs no access token."
OPTIONAL_TOKEN = "Works without an access token; one that is sent must be valid."
# The description of the document says what to do.
STEP_UP = "May ask for a step-up."


def describe_access(contract: Contract, permissions: Iterable[object]) -> str:
    """Return who may call an operation. A permission class says so in its attribute `access`."""
    match contract.token:
        case "none":
            access = NO_TOKEN
        case "optional":
            access = OPTIONAL_TOKEN
        case _:
            access = " ".join(str(getattr(permission, "access", "")) for permission in permissions)
    return f"{access} {STEP_UP}" if contract.assurance else access

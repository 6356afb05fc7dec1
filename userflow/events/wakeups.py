"""Wake the deliverers of webhooks: which tenant has something to send, and when. The sweep finds what a lost one was for."""

from collections.abc import Sequence
from uuid import UUID

from identity_platform.wakeups import Wakeups

_webhooks = Wakeups("webhooks")


def wake(tenant_id: UUID, *, seconds: float = 0.0) -> None:
    """Wake a deliverer for the tenant after `seconds`, or earlier if that was asked for. Does not raise without Valkey."""
    _webhooks.wake(str(tenant_id), seconds=seconds)


def take_due(most: int) -> Sequence[UUID]:
    """Take at most `most` tenants that are due; each goes to one deliverer only. Empty without Valkey."""
    return [UUID(name) for name in _webhooks.take_due(most)]

"""A consumer that receives webhooks over HTTP and verifies them with the public library."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError

from tests.receiver import Receiver


@dataclass
class ReceivedDelivery:
    """A received delivery."""

    id: str
    body: bytes
    headers: dict[str, str]
    answered: int

    @property
    def event(self) -> dict[str, Any]:
        return dict(json.loads(self.body))


@dataclass
class Consumer(Receiver):
    """Respond as told: `respond` takes the delivery's event and returns a status and headers."""

    respond: Callable[[dict[str, Any]], tuple[int, dict[str, str]]] = field(default=lambda event: (204, {}))
    seen: list[ReceivedDelivery] = field(default_factory=list)

    def decide(self, body: bytes) -> tuple[int, dict[str, str]]:
        return self.respond(json.loads(body))

    def keep(self, body: bytes, headers: dict[str, str], status: int) -> None:
        self.seen.append(ReceivedDelivery(headers["webhook-id"], body, headers, status))

    def taken(self) -> list[ReceivedDelivery]:
        """The deliveries that got a 2xx response."""
        return [each for each in self.seen if 200 <= each.answered < 300]

    def accepted(self) -> int:
        return len({each.id for each in self.taken()})

    def names(self) -> list[str]:
        """The names in the accepted events, each once, in the order of their first delivery."""
        return list(dict.fromkeys(each.event["data"].get("name", "") for each in self.taken()))

    def wait_for(self, number: int, *, seconds: float = 60.0) -> list[ReceivedDelivery]:
        """Wait until this number of different messages was accepted."""
        self.await_accepted(number, seconds)
        return self.taken()


def verifies(seen: ReceivedDelivery, secret: str) -> bool:
    """Return whether the public library accepts the signature."""
    try:
        Webhook(secret).verify(seen.body, seen.headers)
    except WebhookVerificationError:
        return False
    return True

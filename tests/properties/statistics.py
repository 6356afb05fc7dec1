"""What a run has reached: steps, time, and the operations and pages that were called."""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.properties.calls import Operation, operations

# Responses to a request that did not pass validation: the body, its type, or its size.
_INVALID = (405, 406, 411, 413, 414, 415)


@dataclass
class Statistics:
    """Counters of this process."""

    began: float = field(default_factory=time.monotonic)
    # While steps that were counted are played again.
    paused: bool = False
    # Parts of messages of violations that are known, to look behind them.
    ignored: list[str] = field(default_factory=list)
    examples: int = 0
    steps: int = 0
    # Requests by operation: all, those that passed validation, and those that succeeded.
    sent: Counter[str] = field(default_factory=Counter)
    valid: Counter[str] = field(default_factory=Counter)
    succeeded: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    pages: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    # Of the first violation of this run of a start, before it is shrunk.
    first_violation_steps: int = 0
    first_violation_at: float = 0

    def violated(self, message: str) -> None:
        """Count a violation."""
        if self.paused:
            return
        self.violations[message] += 1
        if not self.first_violation_at:
            self.first_violation_steps, self.first_violation_at = self.steps, time.monotonic()

    def next_run(self) -> None:
        """Wait for the first violation again."""
        self.first_violation_steps, self.first_violation_at = 0, 0

    def called(self, operation: Operation, response: Any, seconds: float) -> None:
        """Count a request of the attacker."""
        if self.paused:
            return
        name = str(operation)
        self.sent[name] += 1
        self.seconds[name] += seconds
        if response.status_code not in _INVALID and not is_malformed(response):
            self.valid[name] += 1
        if response.status_code < 300:
            self.succeeded[name] += 1

    def form(self, page: str) -> None:
        """Count a form that was sent."""
        self.pages[page] += 1

    def report(self) -> dict[str, Any]:
        """Return the figures, with the names of what was not reached."""
        changing = [str(each) for each in operations() if each.changes]
        every = [str(each) for each in operations()]
        seconds = time.monotonic() - self.began
        return {
            "examples": self.examples,
            "steps": self.steps,
            "seconds": round(seconds, 1),
            "examples_per_minute": round(self.examples * 60 / seconds, 1),
            "milliseconds_per_step": round(seconds * 1000 / max(self.steps, 1), 1),
            "operations": len(every),
            "operations_called": len([name for name in every if self.sent[name]]),
            "changing_operations": len(changing),
            "changing_operations_past_validation": len([name for name in changing if self.valid[name]]),
            "changing_operations_succeeded": len([name for name in changing if self.succeeded[name]]),
            "not_past_validation": [name for name in changing if not self.valid[name]],
            "not_succeeded": [name for name in changing if not self.succeeded[name]],
            "pages": dict(sorted(self.pages.items())),
            "slowest": {name: round(spent, 1) for name, spent in self.seconds.most_common(8)},
            "violations": dict(self.violations),
        }


def is_malformed(response: Any) -> bool:
    """Return whether a response rejects the form of the request."""
    if response.status_code != 400 or "json" not in response.headers.get("Content-Type", ""):
        return False
    body = response.json()
    error = body.get("error", body) if isinstance(body, dict) else {}
    code = error.get("code") if isinstance(error, dict) else error
    return code in ("validation_failed", "invalid_request", "invalid_json", "malformed", "parse_error")


STATISTICS = Statistics()

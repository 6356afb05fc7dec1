"""The explorer reaches what it is to explore: a generator whose requests all end at validation tests nothing behind it."""

import random
from pathlib import Path

from tests.properties.calls import draw_request, operations
from tests.properties.forms import page_paths
from tests.properties.scene import build_scene, send
from tests.properties.starts import new_attacker
from tests.properties.statistics import STATISTICS, is_malformed

# Starts that together may call everything.
_STARTS = ("access token of operator", "access token of admin", "access token of ann", "third-party client")
_TRIES = 12


def test_each_changing_operation_passes_validation(tmp_path: Path) -> None:
    scene = build_scene(tmp_path)
    attackers = [new_attacker(scene, start) for start in _STARTS]
    rejected = {}
    # Those that destroy what others need come last.
    for operation in sorted(operations(), key=lambda each: (each.method == "delete", each.path)):
        if not operation.changes:
            continue
        draws = random.Random(str(operation))
        for number in range(_TRIES):
            attacker = attackers[number % len(attackers)]
            request = draw_request(operation, lambda bound: draws.randrange(bound), attacker.knowledge)  # noqa: B023
            response = send(
                operation.method,
                request.path,
                request.body if operation.media_type == "application/json" else None,
                raw=request.raw,
                address=attacker.address,
                headers=attacker.credentials[0].headers,
                query=request.query,
            )
            STATISTICS.called(operation, response, 0)
            if response.status_code != 405 and not is_malformed(response):
                break
        else:
            rejected[str(operation)] = response.content[:300]
    assert rejected == {}


def test_all_hosted_pages_are_known() -> None:
    assert len(page_paths()) >= 30
    assert {"signin", "account/security", "enroll/app", "consent", "reset"} <= set(page_paths())

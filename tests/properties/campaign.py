"""What `tests.properties.run` runs inside pytest, for its databases: all starts, until the steps are used up."""

import json
import os
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests.properties.machine import Failure
from tests.properties.running import STEPS, explore
from tests.properties.starts import STARTS
from tests.properties.statistics import STATISTICS


@pytest.mark.timeout(0)
def test_campaign() -> None:
    options: dict[str, Any] = json.loads(os.environ["EXPLORER_OPTIONS"])
    STATISTICS.ignored = options["ignore"]
    # All scenes have one operator, whose invitations in an hour would end the campaign.
    settings.LIMITS["invitation"] = (1_000_000, 3600)
    starts = [name for name in STARTS if not options["start"] or any(part in name for part in options["start"])]
    found: list[dict[str, Any]] = []
    of_start: Counter[str] = Counter()
    number = 0
    while STATISTICS.steps < options["steps"]:
        start = starts[number % len(starts)]
        # A start that has failed so often is left out: the same fault again and again hides nothing else.
        if of_start[start] < options["failures"]:
            _explore(start, options, options["seed"] + number // len(starts), found, of_start)
        elif all(of_start[name] >= options["failures"] for name in starts):
            break
        number += 1
    report = {**STATISTICS.report(), "found": found}
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    if options["json"]:
        Path(options["json"]).write_text(json.dumps(report, indent=1))
    assert not found, f"{len(found)} violations"


def _explore(
    start: str, options: dict[str, Any], seed_number: int, found: list[dict[str, Any]], of_start: Counter[str]
) -> None:
    began, steps = time.monotonic(), STATISTICS.steps
    try:
        explore(
            start,
            examples=options["examples"],
            steps=STEPS,
            seed_number=seed_number,
            shortens=not options["no_shorten"],
        )
    except Failure as failure:
        of_start[start] += 1
        seconds = time.monotonic() - began
        found.append(
            {
                "start": start,
                "seed": seed_number,
                "steps": STATISTICS.first_violation_steps - steps,
                "seconds": round(STATISTICS.first_violation_at - began, 1),
                "seconds_with_shortening": round(seconds, 1),
                "sequence": str(failure).splitlines(),
            }
        )
        sys.stdout.write(f"{failure}\n\n")
        sys.stdout.flush()
    except Exception as error:
        # A fault of a step, not a property: the other starts are explored all the same.
        of_start[start] += 1
        found.append({"start": start, "seed": seed_number, "sequence": traceback.format_exception(error)[-3:]})
        sys.stdout.write(f"{start}: {''.join(traceback.format_exception(error)[-3:])}\n")
        sys.stdout.flush()
    STATISTICS.next_run()

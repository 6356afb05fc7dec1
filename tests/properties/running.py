"""Run the explorer for one start: so many examples, and few steps that lead to the violation if a property does not hold."""

import re
from typing import Final

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.properties.machine import Explorer, Failure, Step, explorer_of
from tests.properties.statistics import STATISTICS

STEPS: Final = 50
MOST_REPLAYS: Final = 40


def explore(start: str, *, examples: int, steps: int = STEPS, seed_number: int = 1, shortens: bool = True) -> None:
    """Play random sequences of steps. Raises Failure with a short sequence after which a property does not hold."""
    machine = explorer_of(start)
    seed(seed_number)(machine)
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        # Hypothesis would shrink number by number, and each try makes two tenants: `shorten` leaves out whole steps.
        phases=(Phase.generate,),
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        # The message of a violation has the steps; the drawn numbers say nothing.
        verbosity=Verbosity.quiet,
    )
    try:
        run_state_machine_as_test(machine, settings=chosen)
    except Failure as failure:
        raise (shorten(machine, failure) if shortens else failure) from None


def shorten(machine: type[Explorer], failure: Failure) -> Failure:
    """Leave out steps, many at once and then single ones, as long as the same property fails."""
    shortest, replays = failure, 0
    size = max(1, len(failure.played) // 2)
    while replays < MOST_REPLAYS:
        shorter = None
        for position in range(len(shortest.played) - 1, -1, -size):
            rest = shortest.played[: max(0, position - size + 1)] + shortest.played[position + 1 :]
            if rest[:1] != failure.played[:1]:
                rest = [
                    failure.played[0],
                    *rest,
                ]  # the choice of the victim, without which the rest means something else
            if len(rest) < len(shortest.played) and replays < MOST_REPLAYS:
                replays += 1
                again = replay(machine, rest)
                if again is not None and _kind(again) == _kind(failure):
                    shorter = shortest = again
                    break
        if shorter is None:
            if size == 1:
                break
            size = max(1, size // 2)
    return shortest


def _kind(failure: Failure) -> str:
    """Return what failed, without the numbers and names of one scene."""
    return re.sub(r"[0-9a-f-]{8,}|\d+", "", failure.message)


def replay(machine: type[Explorer], steps: list[Step]) -> Failure | None:
    """Play these steps in a new scene; return the failure if a property does not hold."""
    STATISTICS.paused = True
    played = machine()
    try:
        try:
            for name, choices in steps:
                getattr(played, name)(choices)
        finally:
            played.teardown()
    except Failure as failure:
        return failure
    finally:
        STATISTICS.paused = False
    return None

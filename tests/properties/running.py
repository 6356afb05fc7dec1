"""Run the explorer for one start: so many examples, and the shortest sequence of steps if a property does not hold."""

from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.properties.machine import explorer_of
from tests.properties.properties import Violation

# Daily, and in runs that leave nothing out.
FEW: Final = 2
MANY: Final = 7
STEPS: Final = 25


def explore(start: str, *, examples: int, steps: int = STEPS, seed_number: int = 1, shrinks: bool = True) -> None:
    """Play random sequences of steps. Raises Violation with the shortest sequence that was found."""
    machine = explorer_of(start)
    seed(seed_number)(machine)
    phases = (Phase.generate, Phase.shrink) if shrinks else (Phase.generate,)
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        phases=phases,
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(machine, settings=chosen)
    except Violation as violation:
        # Without Hypothesis' notes, which hold the drawn numbers; the message has the steps.
        raise Violation(str(violation)) from None


def examples_for(config: pytest.Config) -> int:
    """Return how many examples of each start a run of the tests plays."""
    return FEW if config.getoption("everyday") else MANY


def require_properties(start: str, config: pytest.Config) -> None:
    """Fail the test with the shortest sequence of steps after which a property does not hold."""
    try:
        explore(start, examples=examples_for(config))
    except Violation as violation:
        pytest.fail(str(violation), pytrace=False)

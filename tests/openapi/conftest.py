"""Selection of tests of the API document."""

import pytest

DEPTH = "test_fuzzed_calls_succeed_at_most_operations"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the test of all fuzzed calls if only some of them are selected."""
    fuzz = [item for item in items if item.path.name == "test_fuzz.py"]
    depth = [item for item in fuzz if item.name == DEPTH]
    if depth and len(fuzz) - len(depth) < len(depth[0].module.OPERATIONS) * 3:
        items[:] = [item for item in items if item not in depth]
        config.hook.pytest_deselected(items=depth)

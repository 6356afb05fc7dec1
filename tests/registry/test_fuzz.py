"""Every response of the registry to generated requests matches the API document.

The fuzz of all operations meets few services and soon the limit; here are services to find and calls to spare.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as bounds
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from pytest_django.fixtures import Settings
from schemathesis import checks
from schemathesis.specs.openapi import checks as openapi_checks

from identity_platform.wsgi import application
from tests.registry.conftest import Registry
from tests.world import TestTenant

CHECKS = [
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_headers_conformance,
    openapi_checks.response_schema_conformance,
]
BOUNDED = bounds(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.timeout(300)
def test_registry_responses_match_openapi(new_tenant: Callable[[], TestTenant], settings: Settings) -> None:
    settings.LIMITS = {**settings.LIMITS, "registry": (1_000_000, 60)}
    registry = Registry(new_tenant().api)
    document = schemathesis.openapi.from_wsgi("/schema/", application).include(path_regex="^/exsvc/")
    document.config.generation.update(with_security_parameters=False)
    seen: dict[str, set[int]] = {}
    for found in document.get_all_operations():
        operation = found.ok()
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            seen.setdefault(operation.label, set()).update(answers(operation, mode, registry))
    assert len(seen) == 11
    # Each operation was called with valid and with invalid requests.
    for label, statuses in seen.items():
        assert statuses & {200, 201, 409}, label
    for label in ("POST /exsvc/api/v1/services", "PUT /exsvc/api/v1/services/{service_id}"):
        assert 400 in seen[label]


def answers(operation: Any, mode: Any, registry: Registry) -> set[int]:
    """Return the statuses of an operation for this number of cases, half of them on existing records."""
    seen = set()
    service = registry.create()
    credential = registry.bind(service)

    @BOUNDED
    @given(case=operation.as_strategy(generation_mode=mode), there=st.booleans())
    def run(case: Any, there: bool) -> None:
        if there:
            known = {"service_id": service["id"], "credential_id": credential["id"]}
            slots = case.path_parameters or {}
            slots.update({name: value for name, value in known.items() if name in slots})
        headers = {"Authorization": f"Bearer {registry.api.token}"}
        seen.add(case.call_and_validate(headers=headers, checks=CHECKS).status_code)

    # Operations without input have no invalid case; the caller checks that the valid ones were met.
    with contextlib.suppress(Unsatisfiable):
        run()
    return seen

"""A schema-driven fuzzer finds no undocumented status, no body outside the document and no 500."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case, checks
from schemathesis.generation.hypothesis.builder import HypothesisTestConfig, HypothesisTestMode, create_test
from schemathesis.generation.meta import TestPhase
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi import checks as openapi_checks

from identity_platform.wsgi import application
from tests.world import PASSWORD, TestTenant, build_tenant, sign_in_admin, unique_ip

CHECKS = [
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
]
BOUNDED = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def fuzzed_tenant(django_db_setup: None, django_db_blocker: Any) -> Iterator[TestTenant]:
    """A tenant for the fuzzer alone, which destroys data."""
    with django_db_blocker.unblock():
        yield build_tenant("fuzzed")


@pytest.fixture(scope="module")
def fuzzing_operator(django_db_setup: None, django_db_blocker: Any) -> str:
    """The access token of an operator of the fuzzer's own."""
    from userflow.admins.actions import create_admin_user

    name = f"fuzz-{secrets.token_hex(4)}"
    with django_db_blocker.unblock():
        create_admin_user(tenant_id=None, username=name, email=f"{name}@example.com", password=PASSWORD)
        return str(sign_in_admin(name)["access_token"])


_ADDRESS = unique_ip()


def from_an_address_of_its_own(environ: dict[str, Any], start: Any) -> Any:
    """The platform as the fuzzer calls it: what it counts for 127.0.0.1 is left to those who cannot choose theirs."""
    return application({**environ, "REMOTE_ADDR": _ADDRESS}, start)


# The document needs no database, so the operations are known when tests are collected.
schema = schemathesis.openapi.from_wsgi("/schema/", from_an_address_of_its_own)
# Who calls is said by each test; a token that the fuzzer makes up would end every call at 401.
schema.config.generation.update(with_security_parameters=False)
OPERATIONS = {operation.label: operation for operation in (found.ok() for found in schema.get_all_operations())}
operations = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


@cache
def cases_of(label: str) -> list[Case]:
    """Return the requests of an operation: the document's examples, random ones, and one for each limit of its schemas.

    Generating a case takes longer than sending it, and no case depends on a response or on the caller, so every caller
    sends the same ones. The systematic cases are built here: `schema.parametrize()` builds those of every operation when
    tests are collected, in each test process, which takes longer than most tests together.
    """
    cases: list[Case] = []

    @BOUNDED
    def keep(case: Case) -> None:
        cases.append(case)

    config = HypothesisTestConfig(project=schema.config, modes=list(HypothesisTestMode))
    create_test(operation=OPERATIONS[label], test_func=keep, config=config)()
    return cases


def fuzz(
    operation: APIOperation, token: str | None, tenant: TestTenant | None = None, *, systematic: bool = False
) -> None:
    """Send random requests, and with `systematic` one for each limit of the operation's schemas."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    sent = 0
    for case in cases_of(operation.label):
        if systematic or case.meta is None or case.meta.phase.name != TestPhase.COVERAGE:
            with real_tenant(case, tenant):
                case.call_and_validate(headers=headers, checks=CHECKS)
            sent += 1
    assert sent, "nothing was generated"


@contextmanager
def real_tenant(case: Case, tenant: TestTenant | None) -> Iterator[None]:
    """Put the tenant where one is asked for: half of the value of a fuzz lies behind the tenant check."""
    all_places = (case.query, case.path_parameters, case.body)
    places = [place for place in all_places if isinstance(place, dict) and "tenant_id" in place]
    generated = [place["tenant_id"] for place in places]
    for place in places:
        if tenant is not None:
            place["tenant_id"] = str(tenant.id)
    yield
    for place, value in zip(places, generated, strict=True):
        place["tenant_id"] = value


@operations
def test_anonymous_calls_match_the_document(operation: APIOperation) -> None:
    # All other operations return 401 for every input.
    ways = operation.definition.raw["security"]
    fuzz(operation, None, systematic=all("bearer" not in way for way in ways) and {"oauth2": []} not in ways)


@operations
def test_tenant_admin_calls_match_the_document(operation: APIOperation, fuzzed_tenant: TestTenant) -> None:
    fuzz(operation, fuzzed_tenant.api.token, fuzzed_tenant, systematic=True)


@operations
def test_operator_calls_match_the_document(
    operation: APIOperation, fuzzing_operator: str, fuzzed_tenant: TestTenant
) -> None:
    # Others do the same for operators as for the tenant's admin, who has sent these cases.
    fuzz(operation, fuzzing_operator, fuzzed_tenant, systematic="Tenants" in (operation.tags or []))

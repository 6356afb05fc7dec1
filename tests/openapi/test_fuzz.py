"""A schema-driven fuzzer finds no undocumented status, no body outside the document and no 500."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import checks
from schemathesis.generation.hypothesis.builder import HypothesisTestConfig, HypothesisTestMode, create_test
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


def fuzz(
    operation: APIOperation, token: str | None, tenant: TestTenant | None = None, *, systematic: bool = False
) -> None:
    """Send random requests, and with `systematic` one for each limit of the operation's schemas.

    The systematic cases are built here: `schema.parametrize()` builds those of every operation when tests are collected,
    in each test process, which takes longer than most tests together.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    @BOUNDED
    def send(case: Any) -> None:
        if tenant is not None:
            # Half of the value of a fuzz lies behind the tenant check: put the real tenant where one is asked for.
            for place in (case.query, case.path_parameters, case.body):
                if isinstance(place, dict) and "tenant_id" in place:
                    place["tenant_id"] = str(tenant.id)
        case.call_and_validate(headers=headers, checks=CHECKS)

    modes = [HypothesisTestMode.EXAMPLES, HypothesisTestMode.FUZZING]
    if systematic:
        modes.append(HypothesisTestMode.COVERAGE)
    config = HypothesisTestConfig(project=schema.config, modes=modes)
    create_test(operation=operation, test_func=send, config=config)()


@operations
def test_anonymous_calls_match_the_document(operation: APIOperation) -> None:
    # All other operations return 401 for every input.
    fuzz(operation, None, systematic=not operation.definition.raw.get("security"))


@operations
def test_tenant_admin_calls_match_the_document(operation: APIOperation, fuzzed_tenant: TestTenant) -> None:
    fuzz(operation, fuzzed_tenant.api.token, fuzzed_tenant, systematic=True)


@operations
def test_operator_calls_match_the_document(
    operation: APIOperation, fuzzing_operator: str, fuzzed_tenant: TestTenant
) -> None:
    # Others do the same for operators as for the tenant's admin, who has sent these cases.
    fuzz(operation, fuzzing_operator, fuzzed_tenant, systematic="Tenants" in (operation.tags or []))

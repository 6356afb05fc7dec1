"""A schema-driven fuzzer finds no undocumented status, no body outside the document and no 500."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case
from schemathesis.generation.hypothesis.builder import HypothesisTestConfig, HypothesisTestMode, create_test
from schemathesis.generation.meta import TestPhase
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi import checks as openapi_checks

from identity_platform.wsgi import application
from tenants.models import TenantDatabase
from tenants.states import State
from tests.copies import change_tenant
from tests.openapi.real_ids import fields_for, ids_for
from tests.world import PASSWORD, TestTenant, build_tenant, sign_in_admin, unique_ip
from userflow.ids import FORM


@schemathesis.check
def not_a_defect(context: Any, response: Any, case: Case) -> None:
    """500 is a defect. 501, 502 and 503 are responses that the document states where they can occur."""
    assert response.status_code != 500, response.text


CHECKS = [
    not_a_defect,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
]
BOUNDED = settings(
    max_examples=6,
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


@pytest.fixture
def fuzzing_operator() -> str:
    """The access token of an operator of the test's own: fuzzed calls change and deactivate operators, and sign them out."""
    from userflow.admins.actions import create_admin_user

    name = f"fuzz-{secrets.token_hex(4)}"
    create_admin_user(tenant_id=None, username=name, email=f"{name}@example.com", password=PASSWORD)
    return str(sign_in_admin(name)["access_token"])


@pytest.fixture
def fuzzing_admin(fuzzed_tenant: TestTenant) -> str:
    """The same of an admin of the tenant."""
    from userflow.admins.actions import create_admin_user

    name = f"fuzz-{secrets.token_hex(4)}"
    create_admin_user(tenant_id=fuzzed_tenant.id, username=name, email=f"{name}@example.com", password=PASSWORD)
    return str(sign_in_admin(name)["access_token"])


ADDRESS = {"REMOTE_ADDR": unique_ip()}


def from_an_address_of_its_own(environ: dict[str, Any], start: Any) -> Any:
    """The platform as the fuzzer calls it, from another address for each operation: limits of an address end no other one."""
    return application({**environ, **ADDRESS}, start)


# The document needs no database, so the operations are known when tests are collected.
schema = schemathesis.openapi.from_wsgi("/schema/", from_an_address_of_its_own)
# Who calls is said by each test; a token that the fuzzer makes up would end every call at 401.
schema.config.generation.update(with_security_parameters=False)
# Labels of operations that were called, and of those that succeeded at least once.
FUZZED: set[str] = set()
SUCCEEDED: set[str] = set()
OPERATIONS = {operation.label: operation for operation in (found.ok() for found in schema.get_all_operations())}
operations = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
FOR_OPERATORS = {label for label, operation in OPERATIONS.items() if "Tenants" in (operation.tags or [])}


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


def fuzz(operation: APIOperation, token: str | None, tenant: TestTenant | None = None, *, systematic: int = 0) -> None:
    """Send random requests, and of those for each limit of the operation's schemas each `systematic`th, by default none."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if tenant is not None:
        # An operation before may have changed them, for example so that new users have to verify their address first.
        change_tenant(tenant.id, settings={})
        TenantDatabase.objects.filter(pk=tenant.id, status=State.SUSPENDED).update(status=State.ACTIVE)
    ids = ids_for(operation.path, tenant) if tenant is not None else {}
    fields = fields_for(operation.path, tenant) if tenant is not None else {}
    ADDRESS["REMOTE_ADDR"] = unique_ip()
    cases, at_limits = [], []
    for case in cases_of(operation.label):
        (at_limits if case.meta and case.meta.phase.name == TestPhase.COVERAGE else cases).append(case)
    cases += at_limits[::systematic] if systematic else []
    assert cases, "nothing was generated"
    for case in cases:
        with real_ids(case, ids, fields):
            response = case.call_and_validate(headers=headers, checks=CHECKS)
        if response.status_code < 300:
            SUCCEEDED.add(operation.label)
    FUZZED.add(operation.label)


@contextmanager
def real_ids(case: Case, ids: dict[str, str], fields: dict[str, Any]) -> Iterator[None]:
    """Put rows of the tenant into path, query and body: most of the value of a fuzz lies behind 403 and 404."""
    generated: list[tuple[dict[str, Any], str, Any]] = []
    for place, values in ((case.path_parameters, ids), (case.query, fields), (case.body, fields)):
        if isinstance(place, dict):
            generated += [
                (place, name, place[name]) for name, value in values.items() if _replaces(place.get(name), value)
            ]
            place.update({name: values[name] for held, name, _ in generated if held is place})
    yield
    for place, name, value in generated:
        place[name] = value


def _replaces(generated: Any, value: Any) -> bool:
    """Return whether a value is of the right form: a case about the form of a field keeps its own."""
    if isinstance(value, list):
        return isinstance(generated, list) and all(FORM.fullmatch(str(one)) for one in generated)
    if FORM.fullmatch(value):
        return isinstance(generated, str) and FORM.fullmatch(generated) is not None
    return isinstance(generated, str) and generated != ""


@operations
def test_anonymous_calls_match_the_document(operation: APIOperation) -> None:
    # All other operations return 401 for every input.
    ways = operation.definition.raw["security"]
    fuzz(operation, None, systematic=int(all("bearer" not in way for way in ways) and {"oauth2": []} not in ways))


@operations
def test_tenant_admin_calls_match_the_document(
    operation: APIOperation, fuzzed_tenant: TestTenant, fuzzing_admin: str
) -> None:
    fuzz(operation, fuzzing_admin, fuzzed_tenant, systematic=3)


@pytest.mark.nightly
@operations
def test_calls_at_every_limit_match_the_document(
    operation: APIOperation, fuzzed_tenant: TestTenant, fuzzing_admin: str
) -> None:
    fuzz(operation, fuzzing_admin, fuzzed_tenant, systematic=1)


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(operation, id=label, marks=() if label in FOR_OPERATORS else pytest.mark.nightly)
        for label, operation in OPERATIONS.items()
    ],
)
def test_operator_calls_match_the_document(
    operation: APIOperation, fuzzing_operator: str, fuzzed_tenant: TestTenant
) -> None:
    # Others do the same for operators as for the tenant's admin, who has sent these cases.
    fuzz(operation, fuzzing_operator, fuzzed_tenant, systematic=int(operation.label in FOR_OPERATORS))


def test_fuzzed_calls_succeed_at_most_operations() -> None:
    """Runs last, if all others run. A fuzzer whose calls all end at 401, 403 or 404 tests nothing behind them."""
    assert OPERATIONS.keys() == FUZZED
    assert len(SUCCEEDED) >= 120, "\n".join(sorted(FUZZED - SUCCEEDED))

"""A domain or origin belongs to the passkeys of one tenant, and the platform's to no tenant."""

import importlib
import secrets
from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from tenants.models import Tenant, WebAuthnClaim
from tests.console.staff import new_operator
from tests.copies import change_tenant
from tests.mfa.webauthn.passkeys import ORIGIN
from tests.parallel import run_concurrently
from tests.tenants.conftest import check_tenants
from tests.world import Api, TestTenant, build_tenant

TENANTS = "/uflow/admin/tenants"


@pytest.fixture(scope="module")
def pair(django_db_setup: None, django_db_blocker: Any) -> tuple[TestTenant, TestTenant]:
    """Two tenants of this file's own: an RP ID does not change where other tests have enrolled passkeys."""
    with django_db_blocker.unblock():
        return build_tenant("mine"), build_tenant("theirs")


@pytest.fixture
def domain(pair: tuple[TestTenant, TestTenant]) -> Any:
    """A domain that no other test has; the settings of both tenants are as before afterwards."""
    before = [Tenant.objects.get(pk=tenant.id).settings for tenant in pair]
    yield f"d-{secrets.token_hex(5)}.example"
    for tenant, settings in zip(pair, before, strict=True):
        change_tenant(tenant.id, settings=settings)
        WebAuthnClaim.objects.filter(tenant_id=tenant.id).delete()


def put(operator: Api, tenant: TestTenant, **settings: Any) -> Any:
    """Set settings of the tenant over the API."""
    return operator.patch(f"{TENANTS}/{tenant.id}", {"settings": settings})


# What one tenant has and what another one asks for; `D` is the domain.
TAKEN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "RP ID, RP ID": ({"webauthn_rp_id": "D"}, {"webauthn_rp_id": "D"}),
    "RP ID, origin": ({"webauthn_rp_id": "D"}, {"webauthn_origins": ["https://D"]}),
    "RP ID, origin with a port": ({"webauthn_rp_id": "D"}, {"webauthn_origins": ["https://D:8443"]}),
    "RP ID, origin with a dot": ({"webauthn_rp_id": "D"}, {"webauthn_origins": ["https://D."]}),
    "origin, origin": ({"webauthn_origins": ["https://D"]}, {"webauthn_origins": ["https://D"]}),
    "origin, RP ID": ({"webauthn_origins": ["https://D:444"]}, {"webauthn_rp_id": "D"}),
    "second origin": ({"webauthn_origins": ["https://a.D", "https://D"]}, {"webauthn_origins": ["https://D"]}),
    "app": (
        {"webauthn_origins": ["android:apk-key-hash:" + "q" * 43]},
        {"webauthn_origins": ["android:apk-key-hash:" + "q" * 43]},
    ),
    "localhost": ({"webauthn_origins": ["http://localhost:3001"]}, {"webauthn_origins": ["http://localhost:3001"]}),
}


def of(domain: str, stated: dict[str, Any]) -> dict[str, Any]:
    """The settings with the domain in them."""
    return {
        name: [one.replace("D", domain) for one in value] if isinstance(value, list) else value.replace("D", domain)
        for name, value in stated.items()
    }


@pytest.mark.parametrize(("has", "asks"), TAKEN.values(), ids=TAKEN.keys())
def test_settings_reject_domain_of_another_tenant(
    operator: Api, pair: tuple[TestTenant, TestTenant], domain: str, has: dict[str, Any], asks: dict[str, Any]
) -> None:
    mine, theirs = pair
    assert put(operator, theirs, **of(domain, has)).status_code == 200
    response = put(operator, mine, **of(domain, asks), issuer_name="Changed")
    assert (response.status_code, list(response.json()["details"])) == (409, [f"settings.{name}" for name in asks])
    for told in (str(theirs.id), theirs.slug, theirs.name):
        assert told not in response.text
    assert "issuer_name" not in Tenant.objects.get(pk=mine.id).settings


def test_localhost_subdomains_and_ports_are_unclaimed(
    operator: Api, pair: tuple[TestTenant, TestTenant], domain: str
) -> None:
    mine, theirs = pair
    has = {"webauthn_rp_id": domain, "webauthn_origins": [f"https://{domain}", "http://localhost:3002"]}
    assert put(operator, theirs, **has).status_code == 200
    asks = {"webauthn_rp_id": f"b.{domain}", "webauthn_origins": [f"https://c.{domain}", "http://localhost:3003"]}
    assert put(operator, mine, **asks).status_code == 200


def test_tenant_may_repeat_own_claim(operator: Api, pair: tuple[TestTenant, TestTenant], domain: str) -> None:
    mine, theirs = pair
    assert put(operator, mine, webauthn_rp_id=domain).status_code == 200
    assert put(operator, mine, webauthn_rp_id=domain, webauthn_origins=[f"https://{domain}"]).status_code == 200
    assert put(operator, mine, issuer_name="Mine").status_code == 200
    assert put(operator, theirs, webauthn_rp_id=domain).status_code == 409


def test_removed_claim_is_available_again(operator: Api, pair: tuple[TestTenant, TestTenant], domain: str) -> None:
    mine, theirs = pair
    assert put(operator, theirs, webauthn_rp_id=domain).status_code == 200
    assert put(operator, theirs, webauthn_rp_id=None).status_code == 200
    assert put(operator, mine, webauthn_rp_id=domain).status_code == 200


def test_tenant_deletion_releases_domain(operator: Api, pair: tuple[TestTenant, TestTenant], domain: str) -> None:
    made = operator.post(TENANTS, {"name": "Claims", "settings": {"webauthn_rp_id": domain}}).json()
    assert put(operator, pair[0], webauthn_rp_id=domain).status_code == 409
    gone = operator.delete(f"{TENANTS}/{made['tenant_id']}", {"confirm": made["slug"]})
    assert gone.status_code == 200, gone.content
    assert put(operator, pair[0], webauthn_rp_id=domain).status_code == 200


def test_create_rejects_domain_of_another_tenant(
    operator: Api, pair: tuple[TestTenant, TestTenant], domain: str
) -> None:
    assert put(operator, pair[0], webauthn_rp_id=domain).status_code == 200
    slug = f"late-{secrets.token_hex(4)}"
    response = operator.post(TENANTS, {"name": "Late", "slug": slug, "settings": {"webauthn_rp_id": domain}})
    assert (response.status_code, list(response.json()["details"])) == (409, ["settings.webauthn_rp_id"])
    assert not Tenant.objects.filter(slug=slug).exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("webauthn_rp_id", "localhost"),
        ("webauthn_rp_id", "console.example"),
        ("webauthn_rp_id", "public.example"),
        ("webauthn_origins", [ORIGIN]),
        ("webauthn_origins", ["https://fine.example", "https://login.console.example"]),
        ("webauthn_origins", ["https://public.example:8443"]),
    ],
)
def test_settings_reject_domain_of_the_platform(
    operator: Api, tenant: TestTenant, settings: Any, name: str, value: Any
) -> None:
    settings.CONSOLE_RP_ID, settings.CONSOLE_ORIGINS = "console.example", ["https://login.console.example"]
    settings.BASE_URL = "https://public.example/identity"
    response = put(operator, tenant, **{name: value})
    assert (response.status_code, list(response.json()["details"])) == (400, [f"settings.{name}"])
    created = operator.post(TENANTS, {"name": "Platform", "settings": {name: value}})
    assert (created.status_code, list(created.json()["details"])) == (400, [f"settings.{name}"])


def test_parallel_claims_have_one_winner(operator: Api, domain: str) -> None:
    asked = {"webauthn_rp_id": domain, "webauthn_origins": [f"https://b.{domain}", f"https://a.{domain}"]}

    def create(number: int) -> Callable[[], int]:
        body = {"name": f"Race {number}", "settings": asked}
        return lambda: int(Api(token=operator.token).post(TENANTS, body).status_code)

    assert sorted(run_concurrently([create(number) for number in range(20)])) == [201] + [409] * 19
    assert len(set(WebAuthnClaim.objects.filter(name__endswith=domain).values_list("tenant_id", flat=True))) == 1


def test_parallel_claims_of_two_tenants_have_one_winner(
    operator: Api, pair: tuple[TestTenant, TestTenant], domain: str
) -> None:
    def claim(tenant: TestTenant, number: int) -> Callable[[], tuple[TestTenant, int]]:
        api = Api(token=operator.token)
        origins = [f"https://{name}.{domain}" for name in ("ab" if number % 2 else "ba")]
        return lambda: (tenant, put(api, tenant, webauthn_origins=origins).status_code)

    found = run_concurrently([claim(tenant, number) for number in range(10) for tenant in pair])
    winners = {tenant.id for tenant, status in found if status == 200}
    assert len(winners) == 1
    assert {status for tenant, status in found if tenant.id not in winners} == {409}


def test_console_names_the_field_of_a_taken_domain(
    operator: Api, pair: tuple[TestTenant, TestTenant], domain: str
) -> None:
    mine, theirs = pair
    assert put(operator, theirs, webauthn_rp_id=domain).status_code == 200
    tenant = Tenant.objects.get(pk=mine.id)
    form = {"name": tenant.name, "slug": tenant.slug, **tenant.settings, "webauthn_rp_id": domain}
    page = f"/admin/tenants/tenant/{mine.id}/settings/"
    response = new_operator().sign_in().post(page, form)
    assert response.status_code in (400, 409)
    assert f"Another tenant uses {domain}" in response.content.decode()
    assert "webauthn_rp_id" not in Tenant.objects.get(pk=mine.id).settings


def test_related_origins_are_those_of_the_claim(
    operator: Api, pair: tuple[TestTenant, TestTenant], domain: str, settings: Any
) -> None:
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, domain]
    mine, theirs = pair
    put(operator, mine, webauthn_rp_id=domain)
    # As left by a release that let two tenants have one domain.
    _share(theirs, webauthn_rp_id=domain, webauthn_origins=["https://evil.example"])
    api = Api()
    api.client.defaults["HTTP_HOST"] = domain
    assert api.get("/.well-known/webauthn").json() == {"origins": [f"https://{domain}"]}


def _share(tenant: TestTenant, **stated: Any) -> None:
    row = Tenant.objects.get(pk=tenant.id)
    change_tenant(tenant.id, settings={**row.settings, **stated})


def test_migration_gives_a_shared_domain_to_the_oldest(
    operator: Api, pair: tuple[TestTenant, TestTenant], domain: str
) -> None:
    older, younger = sorted(pair, key=lambda tenant: Tenant.objects.get(pk=tenant.id).created_at)
    _share(younger, webauthn_rp_id=domain, webauthn_origins=[f"https://young.{domain}"])
    _share(older, webauthn_rp_id=domain)
    with connection.schema_editor() as editor:
        importlib.import_module("tenants.migrations.0003_webauthn_claims").claim_names(apps, editor)
    claims = dict(WebAuthnClaim.objects.filter(name__endswith=domain).values_list("name", "tenant_id"))
    assert claims == {domain: older.id, f"young.{domain}": younger.id}
    # The younger tenant's passkeys go on working, and its other settings can change.
    assert put(operator, younger, issuer_name="Younger").status_code == 200
    (line,) = check_tenants(younger.slug, older.slug)
    assert domain in line
    assert younger.slug in line
    assert put(operator, older, webauthn_rp_id=None).status_code == 200
    assert check_tenants(younger.slug, repair=True, yes=True) == []
    assert WebAuthnClaim.objects.get(name=domain).tenant_id == younger.id

"""Signing keys, encryption keys and database servers: for operators only. No page shows a byte of a key."""

from collections.abc import Iterator

import pytest

from identity_platform.audit.models import PlatformEvent
from identity_platform.crypto import key_ring
from tenants import keys
from tenants.models import DatabaseServer, DataKey, Tenant, TenantDatabase
from tests.console.staff import Staff, new_auditor, new_operator, new_tenant_admin
from tests.world import TestTenant, capture_statements
from userflow.sessions.models import SigningKey
from userflow.sessions.signing import signing_key_status

SIGNING = "/admin/platform/signing-keys/"
ENCRYPTION = "/admin/platform/encryption-keys/"
SERVERS = "/admin/platform/servers/"


@pytest.fixture
def operator() -> Staff:
    return new_operator().sign_in()


@pytest.fixture
def spare_server() -> Iterator[DatabaseServer]:
    server = DatabaseServer.objects.create(name="console-spare", host="db9.example.com", accepts_tenants=False)
    yield server
    server.delete()


def test_signing_keys_are_shown_and_rotated(operator: Staff) -> None:
    signing = next(key.kid for key in signing_key_status() if key.state == "signing")
    assert signing in operator.get(SIGNING).text
    assert operator.post(f"{SIGNING}rotate/").status_code == 302
    newest = SigningKey.objects.latest("created_at")
    page = operator.get(SIGNING).text
    assert (newest.kid in page, "next" in page) == (True, True)
    event = PlatformEvent.objects.filter(action="signing_key.rotated").latest("id")
    assert (event.target_id, event.actor_id) == (newest.kid, str(operator.id))


def test_leaked_signing_key_is_withdrawn(operator: Staff) -> None:
    operator.post(f"{SIGNING}rotate/")
    newest = SigningKey.objects.latest("created_at")
    assert operator.post(f"{SIGNING}{newest.kid}/withdraw/").status_code == 302
    assert newest.kid not in {key.kid for key in signing_key_status()}
    assert operator.get(f"{SIGNING}{newest.kid}/withdraw/").status_code == 404


def test_rotate_keys_requires_step_up(operator: Staff) -> None:
    before = SigningKey.objects.count()
    operator.time_passes(16)
    assert operator.post(f"{SIGNING}rotate/").headers["Location"].startswith("/admin/reauthenticate/")
    assert SigningKey.objects.count() == before


def test_encryption_keys_page_shows_next_step(operator: Staff) -> None:
    keys.platform_key()
    page = operator.get(ENCRYPTION)
    assert f"Every data key is under {key_ring().primary_id}." in page.text
    stray = DataKey.objects.create(owner="00000000-0000-0000-0000-00000000c0de", ring_key_id="lost", wrapped=b"x")
    try:
        page = operator.get(ENCRYPTION)
        assert page.context["warning"].startswith("Data keys are wrapped under lost")
        assert "would wrap 1 data key under" in page.text
    finally:
        stray.delete()


def test_key_pages_show_no_key_material(operator: Staff, settings: object) -> None:
    ring = str(settings.ENCRYPTION_KEYS)  # type: ignore[attr-defined]  # pytest-django's wrapper
    hidden = [part.partition(":")[2] for part in ring.split(",")]
    private = [bytes(key.private_sealed).hex() for key in SigningKey.objects.all()]
    for path in (SIGNING, ENCRYPTION, SERVERS):
        page = operator.get(path).text
        assert [secret for secret in [*hidden, *private] if secret in page] == []


def test_servers_show_capacity_and_connections(operator: Staff, spare_server: DatabaseServer) -> None:
    page = operator.get(SERVERS).text
    assert ("main" in page, "db9.example.com" in page, "0 of 1000" in page) == (True, True, True)
    shown = operator.get(f"{SERVERS}{DatabaseServer.objects.get(name='main').pk}/")
    used = next(cell.text for label, cell in shown.context["cells"] if label == "Connections")
    assert int(used.split(" of ")[0]) >= 1
    assert "active" in shown.text


def test_unreachable_server_is_marked(operator: Staff, spare_server: DatabaseServer) -> None:
    from tenants.database_servers.servers import seal_url

    sealed = seal_url(spare_server.name, "url_sealed", "postgresql://unknown@127.0.0.1:1/postgres")
    DatabaseServer.objects.filter(pk=spare_server.pk).update(url_sealed=sealed, revision=2)
    page = operator.get(SERVERS)
    assert (page.status_code, "does not respond" in page.text, "unknown@" in page.text) == (200, True, False)


def test_a_servers_capacity_region_and_labels_are_changed(operator: Staff, spare_server: DatabaseServer) -> None:
    path = f"{SERVERS}{spare_server.pk}/change/"
    assert (
        operator.post(path, {"capacity": "7", "accepts": "on", "region": "eu", "labels": "ssd, nvme"}).status_code
        == 302
    )
    spare_server.refresh_from_db()
    assert spare_server.labels == ["nvme", "ssd"]
    assert "nvme, ssd" in operator.get(f"{SERVERS}{spare_server.pk}/").text
    assert (spare_server.capacity, spare_server.accepts_tenants, spare_server.region) == (7, True, "eu")
    assert "eu" in operator.get(SERVERS).text
    assert operator.post(path, {"capacity": "7", "region": "E U"}).status_code == 400
    assert operator.post(path, {"capacity": "7", "labels": "a b"}).status_code == 400
    assert operator.post(path, {"capacity": "-1"}).status_code == 400
    operator.post(path, {"capacity": "7"})
    spare_server.refresh_from_db()
    assert spare_server.accepts_tenants is False


def test_region_of_a_server_with_bound_tenants_is_kept(operator: Staff, spare_server: DatabaseServer) -> None:
    DatabaseServer.objects.filter(pk=spare_server.pk).update(region="eu")
    bound = Tenant.objects.create(name="Bound", slug=f"bound-{spare_server.pk}", settings={"region": "eu"})
    TenantDatabase.objects.create(tenant=bound, server=spare_server, name=f"bound_{spare_server.pk}", status="active")
    try:
        page = operator.post(f"{SERVERS}{spare_server.pk}/change/", {"capacity": "7", "region": "us"})
        assert "is bound to the region eu. Move it first." in page.text
        spare_server.refresh_from_db()
        assert spare_server.region == "eu"
    finally:
        bound.delete()


def test_platform_pages_require_operator_and_permission(tenant: TestTenant) -> None:
    reader = new_operator("tenants:read").sign_in()
    outsiders = [new_tenant_admin(tenant).sign_in(), new_auditor().sign_in()]
    before = SigningKey.objects.count()
    for path in (SIGNING, ENCRYPTION, SERVERS):
        assert reader.get(path).status_code == 200
        assert [outsider.get(path).status_code for outsider in outsiders] == [403, 403]
    for person in (reader, *outsiders):
        assert person.post(f"{SIGNING}rotate/").status_code == 403
    assert SigningKey.objects.count() == before
    assert "rotate" not in reader.get(SIGNING).text


def test_pages_cost_the_same_with_many_rows(operator: Staff, spare_server: DatabaseServer) -> None:
    for path, costs in ((SIGNING, 3), (ENCRYPTION, 3), (SERVERS, 3), (f"{SERVERS}{spare_server.pk}/", 4)):
        # The address of a server is read once per process.
        operator.get(path)
        with capture_statements() as seen:
            assert operator.get(path).status_code == 200
        assert seen.counts == (costs, 0), f"{path}\n" + "\n".join(seen.default)

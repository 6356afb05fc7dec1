"""The signing keys of the chosen tenant: shown to its staff, changed by operators."""

import re

import pytest

from tenants.entering.context import in_tenant
from tests.console.people.browsing import operator_in, send, tenant_events, text_of
from tests.console.staff import Staff, new_tenant_admin
from tests.world import Api, TestTenant, capture_statements
from userflow.sessions.key_pairs import RS256
from userflow.sessions.models import TenantSigningKey
from userflow.sessions.signing import rotate_signing_keys, signer, signing_key_status

KEYS = "/admin/inside/signing-keys/"


@pytest.fixture
def staff(tenant: TestTenant) -> Staff:
    signer(tenant.id)
    return operator_in(tenant)


def states(tenant: TestTenant) -> dict[str, str]:
    return {key.kid: key.state for key in signing_key_status(tenant.id)}


def test_keys_page_shows_the_published_keys(tenant: TestTenant, staff: Staff) -> None:
    with in_tenant(tenant.id):
        signer(tenant.id, RS256)
    page = text_of(staff.get(KEYS))
    published = Api().get(f"/t/{tenant.slug}/jwks").json()["keys"]
    assert {key["alg"] for key in published} == {"ES256", "RS256"}
    assert [key["kid"] for key in published if key["kid"] not in page or key["alg"] not in page] == []
    with in_tenant(tenant.id):
        private = [bytes(key.private_sealed).hex() for key in TenantSigningKey.objects.all()]
    assert [secret for secret in private if secret in page] == []


def test_rotate_publishes_the_next_key_of_the_tenant(tenant: TestTenant, staff: Staff) -> None:
    before, platform = states(tenant), signing_key_status()
    assert send(staff, tenant, f"{KEYS}rotate/").status_code == 302
    after = states(tenant)
    made = after.keys() - before.keys()
    assert {after[kid] for kid in made} == {"next"}
    # Keys that sign go on until the new ones take over.
    assert {kid for kid, state in before.items() if state == "signing"} <= after.keys()
    assert platform == signing_key_status()
    event = tenant_events(tenant, "signing_key.rotated")[0]
    assert (event.target_id in made, event.actor_id) == (True, str(staff.id))
    page = text_of(staff.get(KEYS))
    assert (all(kid in page for kid in made), "next" in page) == (True, True)


def test_rotate_at_once_signs_the_next_token(tenant: TestTenant, staff: Staff) -> None:
    before = signer(tenant.id).kid
    assert send(staff, tenant, f"{KEYS}rotate/", at_once="on").status_code == 302
    assert signer(tenant.id).kid != before
    assert states(tenant)[before] == "verifying"


def test_withdraw_ends_a_key_of_the_tenant(tenant: TestTenant, staff: Staff) -> None:
    spare = rotate_signing_keys(tenant.id)[0].kid
    assert spare in text_of(staff.get(f"{KEYS}{spare}/withdraw/"))
    assert send(staff, tenant, f"{KEYS}{spare}/withdraw/").status_code == 302
    assert spare not in states(tenant)
    assert send(staff, tenant, f"{KEYS}{spare}/withdraw/").status_code == 404
    assert tenant_events(tenant, "signing_key.withdrawn")[0].target_id == spare


def test_keys_of_other_tenants_are_not_reached(tenant: TestTenant, other_tenant: TestTenant, staff: Staff) -> None:
    theirs = rotate_signing_keys(other_tenant.id)[0].kid
    assert theirs not in text_of(staff.get(KEYS))
    assert send(staff, tenant, f"{KEYS}{theirs}/withdraw/").status_code == 404
    # The form of another tab, from before this tenant was chosen.
    before = states(tenant), states(other_tenant)
    assert send(staff, other_tenant, f"{KEYS}rotate/").status_code == 409
    assert (states(tenant), states(other_tenant)) == before


def test_change_keys_requires_operator_and_step_up(tenant: TestTenant, staff: Staff) -> None:
    kid, before = signer(tenant.id).kid, states(tenant)
    staff.time_passes(minutes=16)
    reader, admin = operator_in(tenant, "endusers:read"), new_tenant_admin(tenant).sign_in()
    for path in (f"{KEYS}rotate/", f"{KEYS}{kid}/withdraw/"):
        assert send(staff, tenant, path).headers["Location"].startswith("/admin/reauthenticate/")
        assert [send(each, tenant, path).status_code for each in (reader, admin)] == [403, 403]
    for each in (reader, admin):
        page = text_of(each.get(KEYS))
        assert (kid in page, re.search(r'href="[^"]*(rotate|withdraw)/', page)) == (True, None)
    assert states(tenant) == before


def test_keys_page_statements_are_constant(tenant: TestTenant, staff: Staff) -> None:
    counted = []
    for _ in range(2):
        staff.just_seen()
        with capture_statements() as seen:
            assert staff.get(KEYS).status_code == 200
        counted.append(seen.counts)
        rotate_signing_keys(tenant.id)
    assert counted == [(4, 1), (4, 1)]

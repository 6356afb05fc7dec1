"""Addresses with an international domain: shown in Unicode beside the stored form, and found in both."""

import secrets
from dataclasses import dataclass

import pytest

from tests.console.find.test_find import found, indexed_user
from tests.console.people.browsing import PEOPLE, operator_in, send, text_of
from tests.console.people.test_groups_and_roles import INSIDE, KINDS, join, made
from tests.console.people.test_invitations import INVITATIONS
from tests.console.staff import Staff
from tests.world import TestTenant, User

UNICODE, ENCODED = "münchen.example", "xn--mnchen-3ya.example"


@dataclass
class Spelled:
    """A user, and the two forms of the address."""

    user: User
    shown: str
    stored: str

    def is_in(self, page: str) -> bool:
        """Return whether a page shows the address in Unicode and its stored form beside it."""
        return f'{self.shown} <small class="record-encoded">{self.stored}</small>' in page


@pytest.fixture(scope="module")
def person(tenant: TestTenant) -> Spelled:
    local = f"eva-{secrets.token_hex(4)}"
    return Spelled(indexed_user(tenant, f"{local}@{UNICODE}"), f"{local}@{UNICODE}", f"{local}@{ENCODED}")


@pytest.fixture(scope="module")
def staff(tenant: TestTenant) -> Staff:
    return operator_in(tenant)


@pytest.mark.parametrize("kind", KINDS)
def test_members_are_shown_and_found_in_both_forms(
    tenant: TestTenant, staff: Staff, person: Spelled, kind: str
) -> None:
    key = made(tenant, kind)["id"]
    assert all(
        person.is_in(text_of(staff.get(f"{INSIDE}{kind}/{key}/members/", q=q))) for q in (person.shown, person.stored)
    )
    join(tenant, kind, key, person.user)
    assert all(
        person.is_in(text_of(staff.get(f"{INSIDE}{kind}/{key}/", q=q))) for q in ("", person.shown, person.stored)
    )


def test_page_of_a_user_shows_both_forms(staff: Staff, person: Spelled) -> None:
    assert person.is_in(text_of(staff.get(f"{PEOPLE}{person.user.id}/")))


def test_invitations_are_shown_in_both_forms(tenant: TestTenant, staff: Staff) -> None:
    local = f"guest-{secrets.token_hex(5)}"
    address = f"{local}@{UNICODE}"
    assert send(staff, tenant, f"{INVITATIONS}new/", email=address, client_id=str(tenant.client_id)).status_code == 302
    invited = Spelled(tenant.register(), address, f"{local}@{ENCODED}")
    assert invited.is_in(text_of(staff.get(INVITATIONS)))


def test_find_shows_and_takes_both_forms(tenant: TestTenant, staff: Staff, person: Spelled) -> None:
    for words in (person.shown, person.stored):
        page = found(staff, words)
        assert (f"{PEOPLE}{person.user.id}/" in page, person.is_in(page)) == (True, True), words
    local = f"ann-{secrets.token_hex(4)}"
    body = {"username": local, "email": f"{local}@{UNICODE}", "password": "correct horse 9 battery"}
    made_admin = tenant.api.post("/uflow/admin/users", {**body, "first_name": "Ann", "last_name": "Admin"})
    assert made_admin.status_code == 201, made_admin.content
    admin = Spelled(person.user, f"{local}@{UNICODE}", f"{local}@{ENCODED}")
    assert all(admin.is_in(found(staff, words)) for words in (admin.shown, admin.stored))

"""Invitations of the open tenant."""

import secrets

import pytest

from tests.console.people.browsing import operator_in, send, tenant_events, text_of
from tests.console.staff import Staff, new_tenant_admin
from tests.userflow.mailbox import mails_to
from tests.world import TestTenant

INVITATIONS = "/admin/inside/invitations/"


@pytest.fixture
def staff(tenant: TestTenant) -> Staff:
    return operator_in(tenant)


def invited(staff: Staff, tenant: TestTenant) -> tuple[str, str]:
    """Return the address and the invitation's id."""
    email = f"guest-{secrets.token_hex(5)}@example.com"
    response = send(staff, tenant, f"{INVITATIONS}new/", email=email, client_id=str(tenant.client_id))
    assert response.status_code == 302, response.content.decode()
    rows = tenant.api.get("/uflow/admin/invitations", {"limit": 100}).json()["invitations"]
    return email, next(row["id"] for row in rows if row["email"] == email)


def test_invitation_is_sent_resent_and_cancelled(tenant: TestTenant, staff: Staff) -> None:
    email, key = invited(staff, tenant)
    assert len(mails_to(email)) == 1
    assert email in text_of(staff.get(INVITATIONS))
    send(staff, tenant, f"{INVITATIONS}{key}/resend/")
    assert len(mails_to(email)) == 2
    send(staff, tenant, f"{INVITATIONS}{key}/cancel/")
    assert email in text_of(staff.get(INVITATIONS, status="cancelled"))
    assert email not in text_of(staff.get(INVITATIONS, status="pending"))
    closed = send(staff, tenant, f"{INVITATIONS}{key}/resend/")
    assert closed.status_code == 400
    assert "accepted or cancelled" in text_of(closed)
    (event,) = [event for event in tenant_events(tenant, "invitation.made") if event.target_id == key]
    assert event.actor_id == str(staff.id)


def test_the_form_rejects_a_second_open_invitation(tenant: TestTenant, staff: Staff) -> None:
    email, key = invited(staff, tenant)
    response = send(staff, tenant, f"{INVITATIONS}new/", email=email, client_id=str(tenant.client_id))
    assert (response.status_code, "This address has a pending invitation" in text_of(response)) == (400, True)
    send(staff, tenant, f"{INVITATIONS}{key}/cancel/")
    invited_again = send(staff, tenant, f"{INVITATIONS}new/", email=email, client_id=str(tenant.client_id))
    assert invited_again.status_code == 302


def test_invite_rejects_existing_user(tenant: TestTenant, staff: Staff) -> None:
    person = tenant.register()
    tenant.sign_in(person)
    response = send(staff, tenant, f"{INVITATIONS}new/", email=person.email, client_id=str(tenant.client_id))
    assert "A user with this e-mail address already exists" in text_of(response)


def test_invitations_require_permission_and_own_tenant(
    tenant: TestTenant, other_tenant: TestTenant, staff: Staff
) -> None:
    email, key = invited(operator_in(other_tenant), other_tenant)
    assert email not in text_of(staff.get(INVITATIONS))
    for path in ("resend", "cancel"):
        for someone in (staff, new_tenant_admin(tenant).sign_in()):
            assert someone.get(f"{INVITATIONS}{key}/{path}/").status_code == 404
            assert send(someone, tenant, f"{INVITATIONS}{key}/{path}/").status_code == 404
    assert len(mails_to(email)) == 1
    reader = operator_in(tenant, "invitations:read")
    for path in ("new/", f"{key}/resend/", f"{key}/cancel/"):
        assert reader.get(f"{INVITATIONS}{path}").status_code == 403
        assert send(reader, tenant, f"{INVITATIONS}{path}").status_code == 403


@pytest.mark.parametrize("query", [{"status": "nonsense"}, {"page": "0"}, {"page": "x"}, {"page": "1001"}])
def test_malformed_page_shows_first_page(staff: Staff, query: dict[str, str]) -> None:
    assert staff.get(INVITATIONS, **query).status_code == 200

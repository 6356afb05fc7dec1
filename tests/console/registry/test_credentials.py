"""Credentials in the console: added, rotated, revoked; and a secret shown once, after a recent sign-in and with a reason."""

import json
import logging
import secrets
from datetime import timedelta
from typing import Any

import pytest
from django.utils.timezone import now

from console.signin.models import BrowserSession
from console.signin.store import SessionStore
from identity_platform.audit.models import PlatformEvent
from registry.actions import create_credential, create_service, update_credential
from registry.models import Service, ServiceCredential
from tests.console.staff import Staff, new_auditor, new_operator, new_tenant_admin
from tests.world import TestTenant, capture_statements

KEEPER = ("services:read", "services:credentials")


@pytest.fixture
def keeper(tenant: TestTenant) -> Staff:
    return new_tenant_admin(tenant, *KEEPER).sign_in()


@pytest.fixture
def service(tenant: TestTenant) -> Service:
    return create_service(
        tenant_id=tenant.id, name=f"Service {secrets.token_hex(4)}", type="payment", base_url="https://a.example.com"
    )


def bound(service: Service, secret: Any = "s3cret", **members: Any) -> ServiceCredential:
    return create_credential(
        tenant_id=service.tenant_id, service_id=service.pk, name=secrets.token_hex(4), secret=secret, **members
    )


def at(credential: ServiceCredential, page: str) -> str:
    return f"/admin/registry/service/{credential.service_id}/credentials/{credential.pk}/{page}/"


def page_of(service: Service) -> str:
    return f"/admin/registry/service/{service.pk}/change/"


def add(keeper: Staff, service: Service, **form: Any) -> Any:
    path = f"/admin/registry/service/{service.pk}/credentials/add/"
    return keeper.post(path, {"name": "live", "type": "api_key", "secret": "s3cret", **form})


def revealed(keeper: Staff, credential: ServiceCredential, reason: str = "The till stands still") -> Any:
    return keeper.post(at(credential, "reveal"), {"reason": reason})


def events(credential: ServiceCredential) -> list[tuple[str, str, Any]]:
    found = PlatformEvent.objects.filter(target_id=credential.pk).order_by("id")
    return [(event.action, event.outcome, event.details.get("reason")) for event in found]


def test_credential_is_added_rotated_and_revoked(keeper: Staff, service: Service) -> None:
    assert add(keeper, service, expires_at="2031-05-06T07:08").headers["Location"] == page_of(service)
    credential = service.credentials.get()
    assert f"{credential.expires_at:%Y-%m-%d %H:%M}" == "2031-05-06 07:08"
    keeper.post(at(credential, "rotate"), {"secret": "another"})
    assert "another" in revealed(keeper, credential).text
    for page, status in (("revoke", "revoked"), ("activate", "active")):
        keeper.post(at(credential, page))
        assert service.credentials.get().status == status
    keeper.post(at(credential, "expiry"), {"expires_at": "2020-01-01T00:00"})
    assert "expired" in keeper.get(page_of(service)).text
    keeper.post(at(credential, "delete"))
    assert not service.credentials.exists()


def test_a_secret_may_be_an_object_or_have_several_lines(keeper: Staff, service: Service) -> None:
    secret = {"user": "till", "password": 'pä"ss <b>'}
    add(keeper, service, name="object", secret=json.dumps(secret), is_object="on")
    page = revealed(keeper, service.credentials.get(name="object"))
    assert json.loads(page.context["secret"]) == secret
    assert "<b>" not in page.text
    add(keeper, service, name="lines", secret="-----BEGIN-----\r\nabc\r\n-----END-----\r\n")
    page = revealed(keeper, service.credentials.get(name="lines"))
    assert page.context["secret"] == "-----BEGIN-----\nabc\n-----END-----\n"


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"secret": ""}, "This field is required."),
        ({"secret": "[1]", "is_object": "on"}, "Send a string or a JSON object."),
        ({"expires_at": "2020-01-01T00:00"}, "Send a time in the future."),
    ],
)
def test_validation_errors_are_shown_at_the_field(keeper: Staff, service: Service, form: Any, says: str) -> None:
    response = add(keeper, service, **form)
    assert (response.status_code, says in response.text) == (400, True)
    assert not service.credentials.exists()


def test_credential_form_never_repeats_secret(keeper: Staff, service: Service) -> None:
    add(keeper, service)
    again = add(keeper, service, secret="never-to-be-seen")
    assert (again.status_code, "Choose another name" in again.text) == (400, True)
    assert "never-to-be-seen" not in again.text


def test_revealed_secret_is_on_one_page_only(
    keeper: Staff, service: Service, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = f"planted-{secrets.token_hex(12)}"
    caplog.set_level(logging.DEBUG)
    add(keeper, service, secret=secret)
    credential = service.credentials.get()
    shown = revealed(keeper, credential)
    assert secret in shown.text
    assert "no-store" in shown.headers["Cache-Control"]
    after = [
        keeper.get(path) for path in (page_of(service), at(credential, "reveal"), "/admin/", "/admin/platform/audit/")
    ]
    written = [response.content.decode() for response in after] + [
        str(response.headers) for response in [*after, shown]
    ]
    written += [
        str(keeper.browser.cookies),
        str([SessionStore().decode(row.session_data) for row in BrowserSession.objects.all()]),
    ]
    written += [str(list(PlatformEvent.objects.values())), str(list(ServiceCredential.objects.values("metadata")))]
    written += [caplog.text, *capfd.readouterr()]
    assert [text for text in written if secret in text] == []


def test_reveal_is_audited_with_reason(keeper: Staff, service: Service) -> None:
    credential = bound(service)
    assert keeper.post(at(credential, "reveal"), {"reason": " "}).status_code == 400
    revealed(keeper, credential, "The till stands still")
    assert events(credential)[-1] == ("service_credential.revealed", "success", "The till stands still")
    event = PlatformEvent.objects.filter(target_id=credential.pk).latest("id")
    assert (event.actor_kind, event.actor_id, event.tenant_id) == ("admin", str(keeper.id), service.tenant_id)
    assert ServiceCredential.objects.get(pk=credential.pk).last_read_at is not None


def test_reveal_requires_step_up(keeper: Staff, service: Service) -> None:
    credential = bound(service, "kept-from-view")
    keeper.time_passes(16)
    for response in (keeper.get(at(credential, "reveal")), revealed(keeper, credential)):
        assert response.status_code == 302
        assert response.headers["Location"].startswith("/admin/reauthenticate/")
    assert "service_credential.revealed" not in [action for action, _, _ in events(credential)]


def test_reveal_rejects_revoked_and_expired(keeper: Staff, service: Service) -> None:
    revoked, expired = bound(service, "kept-1"), bound(service, "kept-2", expires_at=now() + timedelta(hours=1))
    changes: list[tuple[ServiceCredential, dict[str, Any]]] = [
        (revoked, {"status": "revoked"}),
        (expired, {"expires_at": now() - timedelta(hours=1)}),
    ]
    for credential, change in changes:
        update_credential(
            tenant_id=service.tenant_id, service_id=service.pk, credential_id=credential.pk, changes=change
        )
        response = revealed(keeper, credential)
        assert (response.status_code, "kept-" in response.text) == (400, False)


def test_reveal_rejects_inactive_service(keeper: Staff, service: Service) -> None:
    credential = bound(service, "kept-in")
    assert "/reveal/" in keeper.get(page_of(service)).text
    Service.objects.filter(pk=service.pk).update(status="inactive")
    response = revealed(keeper, credential)
    assert (response.status_code, "kept-in" in response.text) == (400, False)
    assert "/reveal/" not in keeper.get(page_of(service)).text
    assert [action for action, _, _ in events(credential)] == ["service_credential.created"]


def test_moved_secret_does_not_decrypt(keeper: Staff, service: Service, other_tenant: TestTenant) -> None:
    foreign = create_service(
        tenant_id=other_tenant.id, name=secrets.token_hex(4), type="a", base_url="https://a.example.com"
    )
    stolen, mine = bound(foreign, "of-other-tenant"), bound(service)
    ServiceCredential.objects.filter(pk=mine.pk).update(secret=bytes(stolen.secret))
    response = revealed(keeper, mine)
    assert (response.status_code, "of-other-tenant" in response.text) == (400, False)
    assert events(mine)[-1][:2] == ("service_credential.unreadable", "failed")


def test_service_reader_sees_no_credential_actions(service: Service, tenant: TestTenant) -> None:
    credential = bound(service, "kept-from-view")
    auditor = new_auditor(tenant).sign_in()
    assert "/reveal/" not in auditor.get(page_of(service)).text
    for page in ("reveal", "rotate", "revoke", "activate", "expiry", "delete"):
        for response in (auditor.get(at(credential, page)), auditor.post(at(credential, page), {"reason": "so"})):
            assert response.status_code == 403
    assert service.credentials.get().status == "active"


def test_credentials_of_other_tenant_are_404(
    keeper: Staff, service: Service, tenant: TestTenant, other_tenant: TestTenant
) -> None:
    foreign = create_service(
        tenant_id=other_tenant.id, name=secrets.token_hex(4), type="a", base_url="https://a.example.com"
    )
    credential = bound(foreign, "of-other-tenant")
    operator = new_operator().sign_in().choose(tenant)
    under_mine = at(credential, "reveal").replace(str(foreign.pk), str(service.pk))
    for person in (keeper, operator):
        for path in (at(credential, "reveal"), under_mine):
            response = person.post(path, {"reason": "so"})
            assert (response.status_code, "of-other-tenant" in response.text) == (404, False)
    assert credential.last_read_at is None


def test_a_services_page_costs_the_same_with_many_credentials(keeper: Staff, service: Service) -> None:
    for _ in range(20):
        bound(service)
    with capture_statements() as seen:
        assert keeper.get(page_of(service)).status_code == 200
    # Session, admin user (with the tenant's context), tenant; then the service and its credentials.
    assert seen.counts == (5, 0), "\n".join(seen.default)
    assert not [statement for statement in seen.default if '"secret"' in statement]

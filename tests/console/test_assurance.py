"""Every form of the console requires the authentication that its action needs: otherwise it asks for it and changes nothing.

The forms are found, not listed: a page that shows one, or takes only POST. A form whose action is not in the action table
(userflow.sessions.assurance) is entered in OUTSIDE_THE_TABLE with the reason.
"""

import re
from typing import Any

import pytest
from django.urls import resolve

from identity_platform.audit.models import PlatformEvent, TenantEvent
from tenants.entering.context import in_tenant
from tests.console.every_url import PAGES
from tests.console.staff import Staff, new_operator, new_tenant_admin
from tests.console.test_every_url import World, everything_of, path_of
from tests.console.test_every_url import world as world
from tests.copies import change_tenant
from userflow.accounts.session_models import AdminSession

# Every page has a form to sign out, pages of a chosen tenant one to choose another, and lists one that is empty.
FRAME = r'id="logout-form"|id="changelist-form"|action="/admin/inside/"'
FORM = re.compile(rf'<form(?![^>]*(?:{FRAME}|role="search"))[^>]*method="post"', re.IGNORECASE)
STEP_UP = "/admin/reauthenticate/"
RANK_ONLY = "The table has no row for it: permission and rank decide, as over the API."
REGISTRY = "The table has no row for services and their credentials but for revealing a secret."
# Their search has a field of the name that lists give to their actions.
AUDIT_PAGES = ("audit_trail", "audit_export", "tenant_trail", "tenant_audit_export")
AUDIT = "The table has no row for the audit log; the export is itself audited."
LESS = "It takes rights away and gives none."
OWN = "One's own sessions may be ended by each of them."
OUTSIDE_THE_TABLE = {
    "forgotten": "It is part of the sign-in.",
    "passkey_options": "It is part of the sign-in.",
    "reauthenticate": "This is the step-up itself.",
    "my_sign_in": "Its forms lead to new_backup_codes, end_my_session and end_my_other_sessions.",
    "end_my_session": OWN,
    "end_my_other_sessions": OWN,
    "tenants_tenant_finish": RANK_ONLY,
    "tenants_tenant_migrate": RANK_ONLY,
    "tenants_tenant_backup": "The file stays on the server, readable by its owner alone.",
    "console_job_again": "Deletions and provisionings are in the table; test_narrow_pages sends such a job.",
    "register_person": RANK_ONLY,
    "export_people": "As over the API: without password hashes it is a read, which is itself audited.",
    "reset_person_password": "The link goes to the user's own address.",
    "resend_person_verification": "The link goes to the address that it verifies.",
    "leave_group": LESS,
    "take_role": LESS,
    "delete_group": LESS,
    "delete_role": LESS,
    "new_role": "A new role has no members.",
    "resend_invitation": "Only invitations with roles are in the table.",
    "cancel_invitation": LESS,
    "invitation_cancel": LESS,
    "branding_preview": "It shows values that are not stored.",
    "webhook_test": RANK_ONLY,
    "webhook_replay": RANK_ONLY,
    "webhook_message_replay": RANK_ONLY,
    "directory_dry_run": "It changes nothing.",
    "directory_try": "It changes nothing.",
    "directory_sync": "It applies what a connection was set up for.",
    "registry_service_add": REGISTRY,
    "registry_service_delete": REGISTRY,
    "service_edit": REGISTRY,
    "credential_add": REGISTRY,
    "credential_rotate": REGISTRY,
    "credential_revoke": REGISTRY,
    "credential_activate": REGISTRY,
    "credential_expiry": REGISTRY,
    "credential_delete": REGISTRY,
    "client_activate": RANK_ONLY,
    "client_logouts": RANK_ONLY,
    "admin_activate": RANK_ONLY,
    "server_change": RANK_ONLY,
    "audit_export": AUDIT,
    "tenant_audit_export": AUDIT,
}


def signed_in(staff: Staff, ids: dict[str, Any]) -> Staff:
    """Sign in with a new factor, which the page that removes a factor is about."""
    staff.enrol_totp().sign_in()
    ids["factor"] = staff.row().totp_secrets.get().pk
    ids["session"] = staff.browser.session["console_session"]
    return staff


def pages(staff: Staff) -> list[str]:
    """Return the pages of the console that the admin user may open."""
    operator = staff.tenant_id is None
    return [
        name
        for name, page in PAGES.items()
        if page.needs != "never" and (operator or not page.operators) and name not in ("login", "logout")
    ]


# Operators' forms, and those of a tenant's admins: one walk through all pages for each.
_forms: dict[bool, list[str]] = {}


def forms_of(staff: Staff, ids: dict[str, Any]) -> list[str]:
    """Return the names of all pages that show a form to admin users of this kind or accept only POST."""
    operator = staff.tenant_id is None
    if operator not in _forms:
        _forms[operator] = _forms_found(staff, ids)
    return _forms[operator]


def _forms_found(staff: Staff, ids: dict[str, Any]) -> list[str]:
    found = []
    for name in pages(staff):
        response = staff.get(path_of(name, ids))
        # The actions of this list redirect to pages of their own; the audit logs have a filter of this name.
        known = name in {*AUDIT_PAGES, "userflow_enduser_changelist"}
        assert known or b'<select name="action"' not in response.content, (
            f"{name} is a list with actions: walk through them here"
        )
        # A page that always asks for a recent step-up is a form as well.
        if (
            response.status_code == 405
            or leads(response)
            or (response.status_code == 200 and FORM.search(response.text))
        ):
            found.append(name)
    return found


def leads(response: Any) -> bool:
    """Return whether the response redirects to the step-up."""
    return response.status_code == 302 and response.headers["Location"].startswith(STEP_UP)


def is_aal1(staff: Staff) -> None:
    """The session has proven the password only."""
    session = AdminSession.objects.filter(pk=staff.browser.session["console_session"])
    assert session.update(acr="aal1", amr=["pwd"]) == 1


def is_old(staff: Staff) -> None:
    """The last proof is 16 minutes old."""
    staff.time_passes(16)


@pytest.fixture(params=["operator", "tenant admin"])
def staff(request: pytest.FixtureRequest, world: World) -> Staff:
    if request.param == "operator":
        return signed_in(new_operator(), world.ids_of_a).choose(world.a)
    return signed_in(new_tenant_admin(world.a), world.ids_of_a)


@pytest.mark.parametrize("weakened", [is_old, is_aal1])
def test_forms_below_their_level_lead_to_step_up(world: World, staff: Staff, weakened: Any) -> None:
    forms = forms_of(staff, world.ids_of_a)
    weakened(staff)
    before = stored(world)
    wrong, rejected = [], set()
    for name in forms:
        path, body = path_of(name, world.ids_of_a), {"form_tenant_id": str(world.a.id)}
        if name in OUTSIDE_THE_TABLE:
            wrong += [(name, "needs no entry in OUTSIDE_THE_TABLE")] if leads(staff.get(path)) else []
            continue
        shown, sent = staff.get(path), staff.post(path, body)
        wrong += [] if shown.status_code == 405 or leads(shown) else [(f"get {name}", shown.status_code)]
        wrong += [] if leads(sent) else [(f"post {name}", sent.status_code)]
        rejected |= {
            (method, resolve(path).route) for method in ("GET", "POST") if (method, shown.status_code) != ("GET", 405)
        }
    assert not wrong, "\n".join(map(str, wrong))
    assert stored(world) == before
    assert audited(staff) == rejected
    assert staff.get("/admin/").status_code == 200


def stored(world: World) -> list[Any]:
    """Return all rows of the tenant, without the number of audit events."""
    return everything_of(world.a)[:-2]


def audited(staff: Staff) -> set[tuple[str, str]]:
    """Return method and route of the calls that were rejected, from the audit log that has them."""
    if staff.tenant_id is None:
        return _rejections(PlatformEvent, staff)
    with in_tenant(staff.tenant_id):
        return _rejections(TenantEvent, staff)


def _rejections(model: Any, staff: Staff) -> set[tuple[str, str]]:
    found = model.objects.filter(action="access.rejected", actor_id=str(staff.id)).values_list("details", flat=True)
    return {(details["method"], details["route"]) for details in found}


@pytest.mark.parametrize("operator", [True, False])
def test_without_the_required_factor_no_page_opens(world: World, settings: Any, operator: bool) -> None:
    staff = new_operator() if operator else new_tenant_admin(world.a)
    settings.OPERATORS_REQUIRE_FACTOR = True
    change_tenant(world.a.id, settings={"mfa_policy": "required"})
    assert staff.send_password().headers["Location"] == "/admin/my-sign-in/"
    before = stored(world)
    wrong = []
    for name in pages(staff):
        if PAGES[name].public or name in ("my_sign_in", "new_backup_codes"):
            continue
        path, body = path_of(name, world.ids_of_a), {"form_tenant_id": str(world.a.id)}
        for response in (staff.get(path), staff.post(path, body)):
            out = response.status_code == 302 and response.headers["Location"].startswith("/admin/login/")
            wrong += [] if out or response.status_code == 405 else [(name, response.status_code)]
    assert not wrong, "\n".join(map(str, wrong))
    assert stored(world) == before


def test_each_exception_is_a_form(world: World) -> None:
    operator = signed_in(new_operator(), world.ids_of_a).choose(world.a)
    assert OUTSIDE_THE_TABLE.keys() - set(forms_of(operator, world.ids_of_a)) == set()

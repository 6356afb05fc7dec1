"""The branding form of the console and its preview."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from tenants.entering.context import in_tenant
from tests.console.staff import Staff, new_operator, new_tenant_admin
from tests.copies import change_mapping
from tests.userflow.tenants.test_branding import EVERYTHING, encoded, path_of, picture
from tests.world import TestTenant, capture_statements
from userflow.branding.models import Branding

PAGE = "/admin/inside/branding/"
PREVIEW = f"{PAGE}preview/"
PLAIN = {name: value for name, value in EVERYTHING.items() if name != "texts"}


@pytest.fixture
def own(new_tenant: Callable[[], TestTenant]) -> TestTenant:
    return new_tenant()


@pytest.fixture
def operator(own: TestTenant) -> Staff:
    return new_operator().sign_in().choose(own)


def form(tenant: TestTenant, **changed: Any) -> dict[str, Any]:
    """Return what a browser sends."""
    return {"form_tenant_id": str(tenant.id), "preview_language": "en", **changed}


def logo() -> SimpleUploadedFile:
    return SimpleUploadedFile("logo.png", picture(), "image/png")


def stored(tenant: TestTenant) -> Branding:
    with in_tenant(tenant.id):
        return Branding.objects.get()


def test_branding_form_saves_and_resets(operator: Staff, own: TestTenant) -> None:
    texts = {"text_de_signin_heading": "Willkommen", "text_en_mail_footer": "One\r\nTwo"}
    assert operator.post(PAGE, form(own, **PLAIN, **texts, logo=logo())).status_code == 302
    saved = stored(own)
    assert {name: getattr(saved, name) for name in PLAIN} == PLAIN
    assert saved.texts == {"de": {"signin_heading": "Willkommen"}, "en": {"mail_footer": "One\nTwo"}}
    assert saved.logo_type == "image/png"
    shown = operator.get(PAGE).content.decode()
    assert 'value="Acme Books"' in shown
    assert "Willkommen" in shown
    assert operator.post(PAGE, form(own, **PLAIN, **texts)).status_code == 302
    assert stored(own).updated_at == saved.updated_at
    assert operator.post(PAGE, form(own, remove_logo="on")).status_code == 302
    assert (stored(own).name, stored(own).texts, stored(own).logo) == ("", {}, None)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"color_light": "#7a9fff"}, "with the light surface"),
        ({"color_dark": "blue"}, "six hexadecimal digits"),
        ({"terms_url": "http://acme.example"}, "absolute https URL"),
        ({"logo": SimpleUploadedFile("a.png", b"no image")}, "PNG, JPEG or WebP"),
        ({"logo": SimpleUploadedFile("a.png", bytes(450_000))}, "at most 200 KB"),
        ({"sender_name": "billing@bank.example"}, "without `@`"),
    ],
)
def test_branding_form_shows_errors(operator: Staff, own: TestTenant, changed: Any, says: str) -> None:
    for path in (PAGE, PREVIEW):
        if "logo" in changed:
            changed["logo"].seek(0)
        response = operator.post(path, form(own, name="Kept", **changed))
        assert response.status_code == 400, path
        assert says in response.content.decode(), path
    with in_tenant(own.id):
        assert not Branding.objects.exclude(name="").exists()


def test_preview_shows_values_and_saves_nothing(operator: Staff, own: TestTenant) -> None:
    changed = {"name": "<b>Acme</b>", "color_light": "#7a1fa2", "text_fr_signin_heading": "Bonjour", "logo": logo()}
    page = operator.post(PREVIEW, form(own, **changed, preview_language="fr"))
    text = page.content.decode()
    assert page.status_code == 200
    for part in (
        "&lt;b&gt;Acme&lt;/b&gt;",
        "--accent:#7a1fa2",
        "Bonjour",
        "Adresse e-mail",
        'src="data:image/png;base64,',
    ):
        assert part in text
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'self'" in policy
    assert "unsafe" not in policy
    assert "script-src" not in policy
    assert page.headers["X-Frame-Options"] == "SAMEORIGIN"
    with in_tenant(own.id):
        assert not Branding.objects.exists()


def test_preview_is_limited(operator: Staff, own: TestTenant, settings: Any) -> None:
    settings.LIMITS = {**settings.LIMITS, "preview": (1, 60)}
    assert operator.get(PREVIEW).status_code == 200
    with capture_statements() as statements:
        page = operator.post(PREVIEW, form(own, name="Acme"))
    assert (page.status_code, statements.tenant) == (429, [])
    assert int(page.headers["Retry-After"]) > 0
    assert "frame-ancestors 'self'" in page.headers["Content-Security-Policy"]
    assert operator.get(PAGE).status_code == 200


def test_preview_keeps_what_is_stored(operator: Staff, own: TestTenant) -> None:
    body = {"name": "Stored", "logo": encoded(picture())}
    assert own.api.patch(path_of(own), body).status_code == 200
    for page in (operator.get(PREVIEW), operator.post(PREVIEW, form(own, name="Stored"))):
        text = page.content.decode()
        assert "Stored" in text
        assert 'src="data:image/png;base64,' in text
    assert "data:image" not in operator.post(PREVIEW, form(own, remove_logo="on")).content.decode()


def test_branding_form_of_an_outdated_page_is_rejected(operator: Staff, own: TestTenant) -> None:
    state = operator.get(PAGE).content.decode().partition('name="form_state" value="')[2].partition('"')[0]
    assert own.api.patch(path_of(own), {"name": "Newer"}).status_code == 200
    response = operator.post(PAGE, form(own, name="Mine", form_state=state))
    assert response.status_code == 400
    assert "changed after you opened the page" in response.content.decode()
    assert stored(own).name == "Newer"


def test_branding_is_for_admins_of_the_tenant(own: TestTenant, other_tenant: TestTenant) -> None:
    admin = new_tenant_admin(own).sign_in()
    assert admin.post(PAGE, form(own, name="Of the admin")).status_code == 302
    assert stored(own).name == "Of the admin"
    outsider = new_tenant_admin(other_tenant).sign_in()
    assert outsider.post(PAGE, form(own, name="Stolen")).status_code == 409
    assert stored(own).name == "Of the admin"
    for weak in (new_tenant_admin(own, "admins:read"), new_operator("tenants:read", "admins:write")):
        staff = weak.sign_in().choose(own)
        assert (staff.get(PAGE).status_code, staff.post(PREVIEW, form(own)).status_code) == (403, 403)


def test_saving_branding_needs_a_recent_sign_in(operator: Staff, own: TestTenant) -> None:
    operator.time_passes(minutes=16)
    response = operator.post(PAGE, form(own, name="Late"))
    assert response.status_code == 302
    assert "/admin/reauthenticate/" in response.headers["Location"]
    with in_tenant(own.id):
        assert not Branding.objects.exists()


def test_branding_of_suspended_tenant_is_not_saved(operator: Staff, own: TestTenant) -> None:
    change_mapping(own.id, status="suspended")
    assert operator.get(PAGE).status_code == 200
    assert operator.post(PAGE, form(own, name="Late")).status_code in (400, 403)

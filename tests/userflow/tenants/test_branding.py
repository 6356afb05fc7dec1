"""Branding of a tenant over the API: what is accepted, who may change it, and where it lives."""

import base64
import io
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from PIL import Image

from identity_platform.audit.models import TenantEvent
from tenants.entering.context import in_tenant
from tests.parallel import run_concurrently
from tests.userflow.sessions.aged import aged
from tests.userflow.sessions.clients import make_client, own_token
from tests.world import PASSWORD, Api, TestTenant, sign_in_admin
from userflow.admins.actions import create_admin_user
from userflow.branding.colors import DARK, LIGHT, Theme, contrast, declarations, problem_of
from userflow.branding.logos import LARGEST, STORED_SIZE
from userflow.branding.models import Branding

EVERYTHING: dict[str, Any] = {
    "name": "Acme Books",
    "color_light": "#7a1fa2",
    "color_dark": "#E0B0FF",
    "terms_url": "https://acme.example/terms",
    "privacy_url": "https://acme.example/privacy",
    "support_url": "https://acme.example/help",
    "sender_name": "Acme “Books” Team",
    "language": "de",
    "texts": {"de": {"signin_heading": "Willkommen", "mail_footer": "Acme GmbH\nMusterweg 1"}},
}


def picture(form: str = "PNG", size: tuple[int, int] = (64, 32), **options: Any) -> bytes:
    """Return an image file."""
    out = io.BytesIO()
    Image.new("RGB", size, "#7a1fa2").save(out, form, **options)
    return out.getvalue()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def png_of(width: int, height: int) -> bytes:
    """Return a small PNG file whose header states any size."""
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"")),
        (b"IEND", b""),
    )
    chunks = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.fixture
def own(new_tenant: Callable[[], TestTenant]) -> TestTenant:
    """Return a tenant of the test with its admin just signed in."""
    tenant = new_tenant()
    return replace(tenant, api=Api(token=sign_in_admin(tenant.admin.username)["access_token"]))


def path_of(tenant: TestTenant) -> str:
    return f"/uflow/admin/tenants/{tenant.id}/branding"


def test_branding_is_empty_at_first(own: TestTenant) -> None:
    found = own.api.get(path_of(own)).json()
    assert (found.pop("tenant_id"), found.pop("texts")) == (str(own.id), {})
    assert set(found.values()) == {None}


def test_patch_branding_keeps_what_is_not_sent(own: TestTenant) -> None:
    assert own.api.patch(path_of(own), EVERYTHING).status_code == 200
    changed = own.api.patch(path_of(own), {"name": None, "texts": {"fr": {"signin_intro": "Bonjour"}, "de": {}}})
    assert changed.status_code == 200
    wanted = {**EVERYTHING, "name": None, "texts": {"fr": {"signin_intro": "Bonjour"}}}
    assert changed.json() == {"tenant_id": str(own.id), "logo_url": None, **wanted}
    assert own.api.get(path_of(own)).json() == changed.json()
    assert own.api.patch(path_of(own), {"texts": {}}).json() == changed.json()
    with in_tenant(own.id):
        event = TenantEvent.objects.filter(action="branding.updated").latest("at")
    assert (event.actor_id, event.details) == (str(own.admin.id), {"changed": ["texts"]})
    assert own.api.patch(path_of(own), dict.fromkeys(EVERYTHING)).json()["texts"] == {}


@pytest.mark.parametrize(
    ("changes", "named", "says"),
    [
        ({"color_light": "#7a9fff"}, "color_light", r"light surface #f4f5f7 is 2\.\d\d:1.*darker.*4\.5:1"),
        ({"color_dark": "#1d4fd7"}, "color_dark", r"dark surface #191d23 is 2\.\d\d:1.*lighter.*4\.5:1"),
        ({"color_light": "red;}b{"}, "color_light", "six hexadecimal"),
        ({"color_light": "#12345６"}, "color_light", "six hexadecimal"),
        ({"terms_url": "http://acme.example/"}, "terms_url", "https"),
        ({"terms_url": "javascript:alert(1)"}, "terms_url", "https"),
        ({"support_url": "https://user@acme.example/"}, "support_url", "https"),
        ({"sender_name": "Acme\r\nBcc: a@example.com"}, "sender_name", "one line"),
        ({"sender_name": "billing@bank.example"}, "sender_name", "without `@`"),
        ({"sender_name": "billing＠bank.example"}, "sender_name", "without `@`"),
        ({"sender_name": "https://bank.example"}, "sender_name", "without `@`"),
        ({"sender_name": "Acme\u202egnidoc"}, "sender_name", "invisible"),
        ({"name": "help@bank.example"}, "name", "without `@`"),
        ({"name": "Ac\u200bme"}, "name", "invisible"),
        ({"name": "x" * 65}, "name", "64"),
        ({"language": "it"}, "language", "en, de, fr, es"),
        ({"texts": {"en": {"signin_heading": "x" * 81}}}, "texts.en.signin_heading", "80"),
        ({"texts": {"en": {"mail_footer": "a\0b"}}}, "", ""),
        ({"logo": "no base64!"}, "logo", "base64"),
        ({"logo": encoded(b"<svg xmlns='http://www.w3.org/2000/svg'/>")}, "logo", "PNG, JPEG or WebP"),
        ({"logo": encoded(picture("GIF"))}, "logo", "PNG, JPEG or WebP"),
        ({"logo": encoded(picture()[:60])}, "logo", "PNG, JPEG or WebP"),
        ({"logo": encoded(picture() + b"\0" * LARGEST)}, "logo", "200 KB"),
        ({"logo": encoded(picture(size=(2001, 1)))}, "logo", "2000 x 2000"),
        ({"logo": encoded(b"\0" * 450_000)}, "logo", "at most 200 KB"),
        ({"logo": encoded(png_of(30_000, 30_000))}, "logo", "2000 x 2000"),
        ({"logo": encoded(png_of(9_000, 9_000))}, "logo", "2000 x 2000"),
    ],
)
def test_patch_branding_rejects_invalid_values(own: TestTenant, changes: Any, named: str, says: str) -> None:
    response = own.api.patch(path_of(own), changes)
    assert response.status_code == 400
    if named:
        ((field, (problem,)),) = response.json()["details"].items()
        assert field == named
        assert re.search(says, problem), problem
    assert own.api.get(path_of(own)).json()["color_light"] is None


def webp_of(width: int, height: int) -> bytes:
    """Return a file of 38 bytes with a lossless WebP image in one color (RFC 9649 section 3)."""
    # Five prefix codes of one symbol each, in four bits.
    stream = struct.pack("<BI", 0x2F, (width - 1) | (height - 1) << 14) + (0b0001_0001_0001_0001_0001_000).to_bytes(
        3, "little"
    )
    chunk = b"VP8L" + struct.pack("<I", len(stream)) + stream
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


_READS_A_LOGO = """
import resource, sys
from userflow.branding.logos import LogoRejected, safe_logo

resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
try:
    print(safe_logo(sys.stdin.buffer.read()).media_type)
except LogoRejected as rejected:
    print(rejected)
"""


@pytest.mark.parametrize(("side", "says"), [(100, "image/webp"), (2500, "2000 x 2000"), (13_000, "2000 x 2000")])
def test_logo_is_measured_before_its_canvas_is_allocated(side: int, says: str) -> None:
    # A process of its own, with less memory than the canvas needs.
    command = [sys.executable, "-c", _READS_A_LOGO]
    found = subprocess.run(command, input=webp_of(side, side), capture_output=True, check=True, timeout=60)
    assert says in found.stdout.decode()


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_logo_is_written_again_without_metadata(own: TestTenant, form: str) -> None:
    exif = Image.Exif()
    exif[0x010E] = "SECRET-NOTE"
    sent = picture(form, (1600, 400), exif=exif)
    assert b"SECRET-NOTE" in sent
    address = own.api.patch(path_of(own), {"logo": encoded(sent + b"<script>alert(1)</script>")}).json()["logo_url"]
    response = Api().get(address.partition(settings.BASE_URL)[2])
    assert response.status_code == 200
    assert response.headers["Content-Type"] == f"image/{form.lower()}"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert not response.cookies
    assert response.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert b"SECRET-NOTE" not in response.content
    assert b"<script>" not in response.content
    with Image.open(io.BytesIO(response.content)) as shown:
        assert (shown.format, shown.size) == (form, (STORED_SIZE[0], 160))


def test_address_of_logo_changes_with_it(own: TestTenant) -> None:
    first = own.api.patch(path_of(own), {"logo": encoded(picture())}).json()["logo_url"]
    second = own.api.patch(path_of(own), {"logo": encoded(picture(size=(65, 32)))}).json()["logo_url"]
    assert first != second
    assert Api().get(f"/t/{own.slug}/logo?v=old").headers["Cache-Control"] == "public, max-age=300"
    assert own.api.patch(path_of(own), {"logo": None}).json()["logo_url"] is None
    missing = Api().get(f"/t/{own.slug}/logo")
    assert (missing.status_code, missing.headers["Content-Type"]) == (404, "application/json")
    assert Api().get("/t/no-such-tenant/logo").status_code == 404
    assert Api().post(f"/t/{own.slug}/logo", {}).status_code == 405


def test_palette_and_cmyk_images_are_accepted(own: TestTenant) -> None:
    for mode, form in (("P", "PNG"), ("LA", "PNG"), ("1", "PNG"), ("I;16", "PNG"), ("CMYK", "JPEG"), ("L", "JPEG")):
        out = io.BytesIO()
        Image.new(mode, (20, 20)).save(out, form)
        assert own.api.patch(path_of(own), {"logo": encoded(out.getvalue())}).status_code == 200, mode


def test_branding_of_other_tenants_is_forbidden(tenant: TestTenant, other_tenant: TestTenant, operator: Api) -> None:
    unknown = f"/uflow/admin/tenants/{uuid4()}/branding"
    for method, body in (("GET", None), ("PATCH", {"name": "Mine"})):
        foreign, none = (other_tenant.api.call(method, path, body) for path in (path_of(tenant), unknown))
        assert (foreign.status_code, foreign.content) == (403, none.content)
        assert operator.call(method, unknown, body).status_code == 404
        assert other_tenant.api.call(method, "/uflow/admin/tenants/no-uuid/branding", body).status_code == 400
    assert operator.get(path_of(tenant)).json()["name"] is None


def test_branding_stays_in_its_tenant(own: TestTenant, new_tenant: Callable[[], TestTenant]) -> None:
    neighbor = new_tenant()
    own.api.patch(path_of(own), {"name": "Own", "logo": encoded(picture())})
    assert neighbor.api.get(path_of(neighbor)).json()["name"] is None
    assert Api().get(f"/t/{neighbor.slug}/logo").status_code == 404


def test_branding_is_for_admins_of_the_tenant(tenant: TestTenant) -> None:
    user = tenant.as_user(tenant.register())
    client = Api(token=own_token(make_client(tenant, scopes=["admins:write", "admins:read"])))
    for api, status in ((user, 403), (client, 403), (Api(), 401)):
        assert api.get(path_of(tenant)).status_code == status
        assert api.patch(path_of(tenant), {"name": "Mine"}).status_code == status


def test_patch_branding_needs_admins_write(tenant: TestTenant) -> None:
    name = f"user-manager-{uuid4().hex[:8]}"
    create_admin_user(
        tenant_id=tenant.id, username=name, email=f"{name}@example.com", password=PASSWORD, roles=["user-manager"]
    )
    weak = Api(token=sign_in_admin(name)["access_token"])
    assert weak.get(path_of(tenant)).status_code == 200
    assert weak.patch(path_of(tenant), {"name": "Mine"}).status_code == 403


def test_patch_branding_needs_a_recent_sign_in(own: TestTenant) -> None:
    old = Api(token=aged(str(own.api.token), 16))
    response = old.patch(path_of(own), {"name": "Mine"})
    assert (response.status_code, "15 minutes" in response.json()["message"]) == (401, True)
    assert own.api.get(path_of(own)).json()["name"] is None


def test_branding_of_suspended_tenant_is_shown_to_operators(own: TestTenant, operator: Api) -> None:
    operator.patch(path_of(own)[:-9], {"status": "suspended"})
    assert own.api.get(path_of(own)).status_code == 403
    assert operator.get(path_of(own)).status_code == 200
    assert operator.patch(path_of(own), {"name": "Mine"}).status_code == 403


def test_concurrent_changes_of_texts_are_all_kept(own: TestTenant) -> None:
    def change(language: str) -> int:
        return own.api.patch(path_of(own), {"texts": {language: {"signin_intro": language}}}).status_code

    assert run_concurrently([lambda one=one: change(one) for one in ("en", "de", "fr", "es")]) == [200] * 4
    assert set(own.api.get(path_of(own)).json()["texts"]) == {"en", "de", "fr", "es"}
    with in_tenant(own.id):
        assert Branding.objects.count() == 1


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_colors_are_those_of_the_stylesheet(theme: Theme) -> None:
    css = (settings.BASE_DIR / "openid/static/openid/pages.css").read_text()
    ground, card, accent = re.findall(r"--ground: (#\w+); --card: (#\w+);.*?--accent: (#\w+);", css, re.DOTALL)[
        theme is DARK
    ]
    longer = {"#fff": "#ffffff"}
    assert (ground, longer.get(card, card), accent) == (theme.ground, theme.card, theme.default)
    assert problem_of(theme.default, theme) == ""


@pytest.mark.parametrize(("one", "other", "ratio"), [("#000000", "#ffffff", 21), ("#777777", "#ffffff", 4.48)])
def test_contrast_is_that_of_wcag(one: str, other: str, ratio: float) -> None:
    assert contrast(one, other) == contrast(other, one) == pytest.approx(ratio, abs=0.005)


@pytest.mark.parametrize(
    ("theme", "color"), [(LIGHT, "#7a1fa2"), (LIGHT, "#1a6b1a"), (DARK, "#e0b0ff"), (DARK, "#808890")]
)
def test_derived_colors_keep_the_contrast(theme: Theme, color: str) -> None:
    assert problem_of(color, theme) == ""
    found = dict(pair.split(":") for pair in declarations(color, theme).split(";"))
    assert set(found) == {"--accent", "--on-accent", "--accent-strong", "--tint"}
    for accent in (found["--accent"], found["--accent-strong"]):
        assert min(contrast(accent, theme.card), contrast(accent, theme.ground)) >= 4.5
        assert contrast(accent, found["--on-accent"]) >= 4.5

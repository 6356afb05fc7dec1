"""HEAD is a look at an address, by link checkers and previews: on no hosted page does it change anything."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from django.db.models import F
from django.urls import URLPattern, URLResolver, get_resolver

from openid.browser import STEPS, cookie_name
from openid.pages.email_undo import EmailUndoPage
from openid.pages.page import Page
from openid.pages.unknown import UnknownPage
from openid.urls import below_issuer
from tenants.entering.context import in_tenant
from tenants.entering.target import TENANT_ALIAS
from tests.mfa.people import new_user
from tests.openid.devices import new_device
from tests.openid.pages.visitor import Visitor, begin
from tests.openid.relying_party import Application
from tests.userflow.signin.test_action_table import digests
from tests.world import PASSWORD, TestTenant
from userflow.accounts.session_models import EndUserSession


def pages(entries: list[URLPattern | URLResolver], before: str = "") -> Iterator[tuple[str, type[Page]]]:
    """Yield path and class of every hosted page below the issuer."""
    for entry in entries:
        path = before + str(entry.pattern).replace("<uuid:factor_id>", str(uuid4()))
        view = getattr(getattr(entry, "callback", None), "view_class", object)
        if isinstance(entry, URLResolver):
            yield from pages(entry.url_patterns, path)
        elif issubclass(view, Page):
            yield path, view


NO_TABLE = re.compile(r"(?!)")
# The page that undoes a change of address stays at the platform, and with a slug has the same path as those of the issuer.
PAGES = [*pages(below_issuer), ("email-undo", EmailUndoPage)]


def test_every_page_is_in_the_list() -> None:
    everywhere = pages(get_resolver().url_patterns)
    # The page at all other addresses says only that there is nothing.
    assert {view for _, view in everywhere} - {UnknownPage} == {view for _, view in PAGES}
    assert len(PAGES) > 30


class Browsers:
    """A browser that is signed in, with requests under way, one that waits for its second step, and a new one."""

    def __init__(self, tenant: TestTenant) -> None:
        self.tenant, self.signed_in = tenant, Visitor(tenant)
        user = tenant.register()
        self.signed_in.signs_in(user)
        app: Application = begin(self.signed_in, scope="openid")
        hint = app.tokens()["id_token"]
        asked = app.authorize(prompt="consent", scope="openid email").headers["Location"]
        device = new_device(tenant)
        device.starts(scope="openid")
        self.signed_in.opens("account")
        self.signed_in.sends(follow=False, name="Una")
        self.queries = [
            "",
            asked.partition("?")[2],
            urlencode({"user_code": device.codes["user_code"]}),
            urlencode({"id_token_hint": hint}),
            urlencode(app.parameters()),
            urlencode({"another": "1", "own": "1", "method": "sms"}),
        ]
        self.all = [self.signed_in, self.waiting(), Visitor(tenant)]
        with in_tenant(tenant.id):
            # So long ago that a use of the session would be stored.
            long_ago = F("last_used_at") - timedelta(minutes=5)
            EndUserSession.objects.filter(user_id=user.id).update(last_used_at=long_ago)

    def state(self) -> list[dict[str, str]]:
        """Return a digest of every table of the tenant, and of the platform's."""
        with in_tenant(self.tenant.id):
            return [digests(TENANT_ALIAS, NO_TABLE), digests("default")]

    def waiting(self) -> Visitor:
        visitor, person = Visitor(self.tenant), new_user(self.tenant).enrol_totp()
        visitor.opens("signin")
        visitor.sends(email=person.email, password=PASSWORD)
        assert visitor.at == "signin/verify"
        return visitor


@pytest.fixture
def browsers(tenant: TestTenant) -> Browsers:
    return Browsers(tenant)


def test_head_changes_nothing_on_any_page(browsers: Browsers) -> None:
    assert browsers.signed_in.client.cookies[cookie_name(STEPS, browsers.tenant.id)].value
    before = browsers.state()
    statuses = set()
    for visitor in browsers.all:
        for path, _ in PAGES:
            for query in browsers.queries:
                whole = f"{visitor.root}/{path}?{query}"
                response: Any = visitor.client.head(whole, REMOTE_ADDR=visitor.address)
                statuses.add(response.status_code)
                assert (response.content, dict(response.cookies)) == (b"", {}), whole
        assert browsers.state() == before
    assert statuses <= {200, 303, 400, 403, 404, 405}, statuses


@pytest.mark.parametrize("path", ["authorize", "continue", "logout", "device"])
def test_head_is_rejected_where_get_changes_something(path: str, tenant: TestTenant) -> None:
    response = Visitor(tenant).client.head(f"/t/{tenant.slug}/{path}")
    assert response.status_code == 405
    assert "HEAD" not in response.headers["Allow"]

"""Tabs, double clicks and dead ends: forms act on the account that their page shows, are processed once, and lead on."""

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import redis
from django.conf import settings
from django.core.cache import cache
from django.http import HttpResponse

from identity_platform.api import repeated_forms
from openid.pages.journey_steps import MOST_JOURNEYS
from tests.copies import change_tenant
from tests.mfa.people import new_user
from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.openid.relying_party import register_application
from tests.openid.test_application_tokens import claims_in
from tests.userflow.mailbox import code_in, mails_to
from tests.userflow.passwords.test_reset import mails_to as reset_mails_to
from tests.userflow.passwords.test_reset import token_in
from tests.world import PASSWORD, Api, TestTenant

OTHER_PASSWORD = "another horse 8 battery"


def tab(visitor: Visitor) -> Visitor:
    """Another tab of the same browser."""
    return replace(visitor, page=None)


# --- two tabs, two accounts ------------------------------------------------------------------------------------------


def test_each_tab_signs_in_the_account_that_it_shows(tenant: TestTenant) -> None:
    first, second = tenant.register(), tenant.register()
    tab_a = Visitor(tenant)
    tab_b = tab(tab_a)
    app_a = begin(tab_a)
    tab_a.sends(email=first.email, password="wrong password 1")
    begin(tab_b)
    tab_b.sends(email=second.email, password="wrong password 1")
    assert first.email in tab_a.text
    tokens = app_a.exchange(code_of(tab_a.sends(email=first.email, password=PASSWORD))).json()
    assert claims_in(tokens["id_token"])["sub"] == str(first.id)


def test_each_tab_signs_in_its_account_without_an_application(tenant: TestTenant) -> None:
    first, second = tenant.register(), tenant.register()
    tab_a = Visitor(tenant)
    tab_b = tab(tab_a)
    for opened, user in ((tab_a, first), (tab_b, second)):
        opened.opens("signin")
        opened.sends(email=user.email, password="wrong password 1")
    tab_a.sends(email=first.email, password=PASSWORD)
    assert tab_a.at == "account"
    assert tab_a.opens("account/data").json()["profile"]["email"] == first.email


def test_wrong_password_counts_against_the_account_of_its_tab(tenant: TestTenant) -> None:
    first, second = tenant.register(), tenant.register()
    tab_a = Visitor(tenant)
    tab_b = tab(tab_a)
    for opened, user in ((tab_a, first), (tab_b, second)):
        begin(opened)
        opened.sends(email=user.email, password="wrong password 1")
    tab_a.sends(email=first.email, password="wrong password 2")
    assert (tab_a.page.status_code, first.email in tab_a.text) == (400, True)
    assert second.email not in tab_a.text


def test_second_step_of_another_sign_in_is_refused(tenant: TestTenant) -> None:
    first, second = new_user(tenant).enrol_totp(), new_user(tenant).enrol_totp()
    shown = Visitor(tenant)
    begin(shown)
    shown.sends(email=first.email, password=PASSWORD)
    query = shown.query
    copy = tab(shown)
    copy.opens(f"signin?{query}&another=1")
    copy.sends(email=second.email, password=PASSWORD)
    assert copy.at == "signin/verify"
    shown.sends(code=second.code(1))
    assert (shown.page.status_code, shown.session) == (403, None)
    # Its button opens the page as it is now.
    shown.opens(links_of(shown)["Open the page again"])
    assert second.email in shown.words
    assert code_of(copy.sends(code=second.code(1)))


def test_browser_keeps_few_journeys(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    tabs = []
    for _ in range(MOST_JOURNEYS + 3):
        opened = tab(visitor)
        begin(opened)
        tabs.append(opened)
    names = [name for name, morsel in visitor.client.cookies.items() if "steps." in name and morsel.value]
    assert len(names) == MOST_JOURNEYS
    user = tenant.register()
    assert code_of(tabs[-1].sends(email=user.email, password=PASSWORD))


def test_link_of_a_mail_goes_on_with_the_latest_journey(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    begin(visitor)
    second = tab(visitor)
    app = begin(second)
    second.opens(f"forgot?{second.query}")
    second.sends(email=user.email)
    mailed = tab(visitor)
    mailed.opens("reset")
    mailed.sends(token=token_in(reset_mails_to(user.email)[-1]), password=OTHER_PASSWORD)
    assert (mailed.at, user.email in mailed.words) == ("signin/password", True)
    tokens = app.exchange(code_of(mailed.sends(password=OTHER_PASSWORD))).json()
    assert claims_in(tokens["id_token"])["sub"] == str(user.id)


# --- the same form twice ---------------------------------------------------------------------------------------------


def sends_twice(visitor: Visitor, **fields: str) -> None:
    """Send the form of the page twice, as a double click does; check that both responses are the same, and follow it."""
    before, cookies = visitor.page, values_of(visitor.client.cookies)
    first = visitor.sends(follow=False, **fields)
    seen = (first.status_code, first.content, first.headers.get("Location"), values_of(first.cookies))
    visitor.page = before
    visitor.client.cookies.load(cookies)
    second = visitor.sends(follow=False, **fields)
    assert (second.status_code, second.content, second.headers.get("Location"), values_of(second.cookies)) == seen
    visitor._follow()


def values_of(cookies: Any) -> dict[str, str]:
    return {name: morsel.value for name, morsel in cookies.items()}


def test_right_code_twice_signs_in(tenant: TestTenant) -> None:
    person = new_user(tenant).enrol_totp()
    visitor = Visitor(tenant)
    begin(visitor)
    visitor.sends(email=person.email, password=PASSWORD)
    sends_twice(visitor, code=person.code(1))
    assert code_of(visitor.page)


def test_registration_twice_is_one(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    visitor.opens("register")
    sends_twice(visitor, email="twice@example.com", name="", password=PASSWORD)
    assert visitor.at == "account"


def test_code_of_a_mail_twice_verifies(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    change_tenant(tenant.id, settings={"email_verification": "required"})
    visitor, email = Visitor(tenant), "verified-twice@example.com"
    visitor.opens("register")
    visitor.sends(email=email, name="", password=PASSWORD)
    assert visitor.at == "verify-email"
    sends_twice(visitor, email=email, code=code_in(mails_to(email)[-1]))
    assert visitor.at == "signin/password"


def test_other_entries_are_another_form(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor = Visitor(tenant)
    begin(visitor)
    before = visitor.page
    visitor.sends(email=user.email, password="wrong password 1")
    visitor.page = before
    assert code_of(visitor.sends(email=user.email, password=PASSWORD))


def test_two_at_once_are_processed_once(tenant: TestTenant) -> None:
    """The second sender waits for the response of the first."""
    started, ended = threading.Event(), threading.Event()
    processed, responses = [], []

    def slow() -> Any:
        processed.append(1)
        started.set()
        assert ended.wait(10)
        return HttpResponse("done", status=303, headers={"Location": "/next"})

    def send() -> None:
        responses.append(repeated_forms.respond_once(f"key-of-{tenant.id}", slow))

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert started.wait(10)
    ended.set()
    for thread in threads:
        thread.join(20)
    assert len(processed) == 1
    assert [(response.status_code, response.headers["Location"]) for response in responses] == [(303, "/next")] * 3


def test_failed_form_is_processed_again(tenant: TestTenant) -> None:
    key, statuses = f"failing-{tenant.id}", iter([503, 429, 303])
    responses = [
        repeated_forms.respond_once(key, lambda: HttpResponse(status=next(statuses))).status_code for _ in range(4)
    ]
    assert responses == [503, 429, 303, 303]
    with pytest.raises(ZeroDivisionError):
        repeated_forms.respond_once(f"raising-{tenant.id}", lambda: HttpResponse(status=1 // 0))
    assert cache.get(f"form:raising-{tenant.id}") is None


@pytest.mark.parametrize(("status", "most_seconds"), [(303, 120), (200, 120), (400, 10), (409, 10)])
def test_page_with_error_is_kept_for_a_double_click_only(tenant: TestTenant, status: int, most_seconds: int) -> None:
    key = f"kept-{status}-{tenant.id}"
    repeated_forms.respond_once(key, lambda: HttpResponse(status=status))
    with redis.from_url(settings.REDIS_URL) as valkey:
        assert most_seconds - 5 < valkey.ttl(cache.make_key(f"form:{key}")) <= most_seconds


def test_stored_response_cannot_be_read_without_the_key(tenant: TestTenant) -> None:
    key = f"sealed-{tenant.id}"
    repeated_forms.respond_once(key, lambda: HttpResponse(b"a secret cookie", status=200))
    assert b"secret" not in cache.get(f"form:{key}")
    # A value that was put under another form's name does not open.
    cache.set(f"form:other-{tenant.id}", cache.get(f"form:{key}"), timeout=60)
    assert repeated_forms._opened(f"other-{tenant.id}", cache.get(f"form:{key}")) is None


# --- every end leads on ----------------------------------------------------------------------------------------------


def links_of(visitor: Visitor) -> dict[str, str]:
    """Return the buttons of an error page: text and address."""
    found = re.findall(r'<a class="button[^"]*" href="([^"]*)"[^>]*>([^<]*)</a>', visitor.text)
    return {text: address for address, text in found}


def test_bookmark_of_a_finished_sign_in_leads_on(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    begin(visitor)
    query = visitor.query
    code_of(visitor.sends(email=user.email, password=PASSWORD))
    for path in ("signin", "signin/password", "continue", "consent"):
        visitor.opens(f"{path}?{query}")
        assert visitor.page.status_code == 400, path
        assert links_of(visitor) == {"Your account": f"{visitor.root}/account"}, path
    newcomer = Visitor(tenant)
    newcomer.opens(f"signin?{query}")
    assert links_of(newcomer) == {"Sign in": f"{visitor.root}/signin"}


def test_wrong_request_of_an_application_leads_back_to_it(tenant: TestTenant) -> None:
    client = register_application(tenant, client_uri="https://shop.example.com/start")
    visitor = Visitor(tenant)
    visitor.opens(
        f"authorize?client_id={client['client_id']}&redirect_uri=https://evil.example.com/&response_type=code"
    )
    assert visitor.page.status_code == 400
    assert links_of(visitor) == {
        f"Back to {client['name']}": "https://shop.example.com/start",
        "Sign in": f"{visitor.root}/signin",
    }
    # People get a text of their own; the reason is folded.
    before, _, folded = visitor.text.partition("<details>")
    assert "redirect_uri" in folded.partition("</details>")[0]
    assert "redirect_uri" not in before
    reference = visitor.page.headers["X-Request-ID"]
    assert f"give this number: {reference}" in visitor.words


@pytest.mark.parametrize("end", ["", "/"])
def test_issuer_itself_leads_to_the_account(tenant: TestTenant, end: str) -> None:
    response = Api().get(f"/t/{tenant.slug}{end}")
    assert (response.status_code, response.headers["Location"]) == (302, f"/t/{tenant.slug}/account")
    assert Api().post(f"/t/{tenant.slug}{end}", {}).status_code == 405


def test_wrong_path_is_a_page_for_people(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    visitor.opens("no/such/page", Accept="text/html,*/*;q=0.8")
    assert visitor.page.status_code == 404
    assert "There is no page at this address." in visitor.words
    assert links_of(visitor) == {"Sign in": f"{visitor.root}/signin"}
    for method, accepts in (("get", "application/json"), ("post", "text/html")):
        page = getattr(visitor.client, method)(f"{visitor.root}/no/such/page", headers={"Accept": accepts})
        assert (page.status_code, page.headers["Content-Type"]) == (404, "application/json")


def test_expired_form_leads_to_its_page(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    visitor.opens("register")
    visitor.client.cookies.clear()
    visitor.sends(email="late@example.com", name="", password=PASSWORD)
    assert visitor.page.status_code == 403
    assert links_of(visitor) == {"Open the page again": f"{visitor.root}/register"}

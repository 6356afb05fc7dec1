"""Pages without a journey, and Back to the pages of one that is finished, over HTTP: each leads on.

test_browser_ways_on.py opens and sends every page in Chromium.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.mfa.people import code_to, new_user
from tests.openid.devices import new_device
from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.userflow.invitations.test_invitations import invite, token_of
from tests.userflow.passwords.test_reset import mails_to as reset_mails_to
from tests.userflow.passwords.test_reset import token_in
from tests.world import PASSWORD, TestTenant

NEW = "another horse 8 battery"
_WAY = re.compile(r"<(?:a [^>]*href=|button)")


def leads_on(visitor: Visitor) -> bool:
    """Return whether the page has a link or a button beside those of the language."""
    content = visitor.text.partition("<main>")[2].partition("</main>")[0]
    return visitor.page.status_code < 500 and bool(_WAY.search(content))


@pytest.mark.parametrize(
    ("path", "new", "signed_in"),
    [
        ("signin/password", "signin", "account"),
        ("signin/verify", "signin", "account"),
        ("enroll", "signin", "step-up"),
        ("enroll/app", "signin", "step-up"),
        ("enroll/passkey", "signin", "step-up"),
        ("enroll/phone", "signin", "step-up"),
        ("step-up", "signin", "account"),
        ("continue", "signin", "account"),
        ("email-undo", "email-undo", "email-undo"),
        ("device?decided=approved", "device", "device"),
        ("device?decided=denied", "device", "device"),
        ("device?decided=unknown", "device", "device"),
        ("reset", "reset", "reset"),
        ("invitation", "invitation", "invitation"),
        ("verify-email", "verify-email", "verify-email"),
    ],
)
def test_page_without_a_journey_leads_on(tenant: TestTenant, path: str, new: str, signed_in: str) -> None:
    visitor = Visitor(tenant)
    visitor.opens(path)
    assert (visitor.at, visitor.page.status_code, leads_on(visitor)) == (new, 200, True)
    visitor.signs_in(tenant.register())
    visitor.opens(path)
    assert (visitor.at, visitor.page.status_code, leads_on(visitor)) == (signed_in, 200, True)


@dataclass
class Recorder(Visitor):
    """A browser with a history."""

    history: list[str] = field(default_factory=list)

    def _follow(self) -> Any:
        page = super()._follow()
        request = page.request
        self.history.append(f"{request['PATH_INFO']}?{request['QUERY_STRING']}")
        return page

    def goes_back(self) -> set[str]:
        """Open every page of the history again, and check that each leads on; return their paths."""
        history, paths = [*self.history], set()
        for address in reversed(history):
            paths.add(address.partition("?")[0].removeprefix(f"{self.root}/"))
            self.opens(address)
            at_application = self.page.status_code == 303
            assert at_application or leads_on(self), (address, self.page.status_code, self.words)
        return paths


def test_back_from_second_step_and_step_up_leads_on(tenant: TestTenant) -> None:
    person, visitor = new_user(tenant).enrol_phone(), Recorder(tenant)
    begin(visitor, client={})
    visitor.sends(email=person.email, password=PASSWORD)
    visitor.sends(send="1")
    visitor.sends(sms_code=code_to(person.phone))
    assert code_of(visitor.sends(allow="1"))
    visitor.opens("step-up?next=security")
    expected = {"authorize", "signin/verify", "consent", "step-up"}
    assert expected <= visitor.goes_back()


def test_back_from_enrollment_and_device_leads_on(tenant: TestTenant) -> None:
    device, user, visitor = new_device(tenant), tenant.register(), Recorder(tenant)
    device.starts(scope="openid")
    visitor.signs_in(user, f"device?user_code={device.codes['user_code']}")
    visitor.sends(allow="1")
    for path in ("enroll?own=1", "enroll/passkey?own=1", "enroll/phone?own=1"):
        visitor.opens(path)
        if visitor.at == "step-up":
            visitor.sends(password=PASSWORD)
    visitor.sends("enroll/app?own=1")
    assert {"consent", "device", "enroll", "enroll/app", "enroll/passkey", "enroll/phone"} <= visitor.goes_back()


def test_back_from_pages_of_mails_leads_on(tenant: TestTenant) -> None:
    user, visitor = tenant.register(), Recorder(tenant)
    begin(visitor)
    visitor.opens(f"forgot?{visitor.query}")
    visitor.sends(email=user.email)
    visitor.opens("reset")
    visitor.sends(token=token_in(reset_mails_to(user.email)[-1]), password=NEW)
    code_of(visitor.sends(password=NEW))
    visitor.opens("invitation")
    visitor.sends(token=token_of(invite(tenant, "end_user")), name="Ina", password=PASSWORD)
    visitor.opens("verify-email")
    assert {"forgot", "reset", "signin/password", "invitation", "verify-email"} <= visitor.goes_back()

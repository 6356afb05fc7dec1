"""Applications sign users in while their tenant is moved, restored and deleted: what they are told, and what stays valid."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import pytest
from django.db import connections

from tenants.lifecycle.capacity import main_server
from tenants.models import DatabaseServer, DataKey, TenantDatabase
from tests.machine.conftest import within
from tests.openid.pages.visitor import Visitor, code_of
from tests.openid.relying_party import CALLBACK, Application, register_application
from tests.openid.test_issuers import jwks
from tests.tenants.conftest import databases_on, run_command, throw_away
from tests.tenants.test_relocation import at_the_step
from tests.world import PASSWORD, Api, TestTenant, User, build_tenant


@dataclass
class SignIn:
    """What one sign-in has given to the browser and to the application. Each is tried once, by `lives`."""

    app: Application
    visitor: Visitor
    access: str
    id_token: str
    refresh: str
    # Not exchanged.
    code: str

    def lives(self) -> dict[str, bool]:
        """Return what of it still works; everything else gets the error that the documentation names."""
        userinfo = Api(token=self.access).get(f"{self.app.issuer}/userinfo")
        assert userinfo.status_code in (200, 401), userinfo.content
        self.visitor.opens("account")
        return {
            "access": userinfo.status_code == 200,
            "refresh": _is_granted(self.app.token(grant_type="refresh_token", refresh_token=self.refresh)),
            "code": _is_granted(self.app.exchange(self.code)),
            "browser": self.visitor.at == "account",
        }


ALL = {"access": True, "refresh": True, "code": True, "browser": True}
NONE = dict.fromkeys(ALL, False)


def _is_granted(response: Any) -> bool:
    assert response.status_code == 200 or response.json()["error"] == "invalid_grant", response.content
    return bool(response.status_code == 200)


def error_for_application(response: Any) -> str:
    """Return the error that a redirect takes to the application, or ""."""
    return parse_qs(urlsplit(response.headers.get("Location", "")).query).get("error", [""])[0]


class Rejected(Exception):
    """The platform has answered with a documented error."""


@dataclass
class Traffic:
    """Users who sign in at an application of the tenant, again and again, in threads."""

    tenant: TestTenant
    client: dict[str, Any] = field(init=False)
    done: list[SignIn] = field(default_factory=list)
    # By step and status; each of them is documented.
    rejected: Counter[tuple[str, int]] = field(default_factory=Counter)
    # After a suspension and a deletion the answers are other ones too.
    also: frozenset[int] = frozenset()
    # Sign-ins of each user, also rejected ones.
    turns: Counter[str] = field(default_factory=Counter)
    over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.client = register_application(self.tenant, first_party=True)

    def sign_in(self, user: User) -> SignIn:
        """Sign in at the hosted pages, and exchange one of two codes. Raises Rejected."""
        visitor = Visitor(self.tenant)
        app = Application(self.tenant, self.client)
        app.browser.client, app.browser.address = visitor.client, visitor.address
        visitor.page = self.checked("authorize", app.authorize())
        self.checked("sign-in page", visitor._follow())
        page = self.checked("password", visitor.sends(email=user.email, password=PASSWORD))
        tokens = self.checked("token", app.exchange(code_of(page))).json()
        refreshed = self.checked(
            "refresh", app.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
        ).json()
        code = code_of(self.checked("authorize", app.authorize()))
        return SignIn(app, visitor, refreshed["access_token"], tokens["id_token"], refreshed["refresh_token"], code)

    def checked(self, step: str, response: Any) -> Any:
        """Return the response. Raises Rejected for an error that the documentation names; any other fails the test."""
        status, error = response.status_code, error_for_application(response)
        if status in (200, 303) and not error:
            return response
        if error:
            # Authorization requests are answered at the application.
            status = {"temporarily_unavailable": 503, "access_denied": 403}[error]
        self.rejected[step, status] += 1
        if error:
            assert status == 503 or status in self.also, error
        elif status == 503:
            assert int(response.headers["Retry-After"]) > 0
        else:
            assert response.status_code in self.also, (step, response.status_code, response.content)
        raise Rejected

    def _run(self, user: User) -> None:
        try:
            while not self.over.is_set():
                try:
                    self.done.append(self.sign_in(user))
                except Rejected:
                    self.over.wait(0.01)
                self.turns[user.email] += 1
        finally:
            connections.close_all()

    def has_had(self, number: int, *, more: Callable[[], int]) -> None:
        """Wait until `more()` is larger by this number. The job may be over before a slow machine has done anything."""
        wanted = more() + number
        assert within(60, lambda: more() >= wanted)

    def all_have_had_a_turn(self) -> None:
        """Wait until every sign-in that had begun is over."""
        self.has_had(1, more=lambda: min(self.turns.values()))

    @contextmanager
    def flowing(self, *users: User) -> Iterator[None]:
        """Sign these users in during the block, each in a thread."""
        self.turns = Counter({user.email: 0 for user in users})
        with ThreadPoolExecutor(len(users)) as pool:
            threads = [pool.submit(self._run, user) for user in users]
            try:
                self.has_had(2, more=lambda: len(self.done))
                yield
            finally:
                self.over.set()
            assert [thread.result() for thread in threads] == [None, None]


@pytest.fixture
def settled(django_db_setup: None) -> Iterator[TestTenant]:
    """A tenant on the main server, deleted after the test."""
    tenant = build_tenant("settled")
    yield tenant
    throw_away(tenant.row)


def verified(tenant: TestTenant, token: str, **rules: Any) -> dict[str, Any]:
    """Return the claims of a token that an application verifies with the published keys."""
    key = jwt.PyJWKSet.from_dict(jwks(tenant))[jwt.get_unverified_header(token)["kid"]]
    return dict(jwt.decode(token, key, algorithms=["ES256", "RS256"], **rules))


def test_sign_ins_go_on_after_a_move(settled: TestTenant, second: DatabaseServer) -> None:
    traffic, during, keys = Traffic(settled), [], jwks(settled)
    user, *users = (settled.register() for _ in range(3))
    before = traffic.sign_in(user)

    def look() -> None:
        traffic.all_have_had_a_turn()
        during.append(jwks(settled))

    with traffic.flowing(*users):
        with at_the_step("written out", look):
            run_command("move_tenant", settled.slug, second.name, offline=True)
        traffic.has_had(2, more=lambda: len(traffic.done))
    assert TenantDatabase.objects.get(pk=settled.id).server_id == second.pk
    assert {status for _, status in traffic.rejected} == {503}
    assert [*during, jwks(settled)] == [keys, keys]
    # Those of before, around and after the move: no session is half open, and no code or token was lost.
    for each in (before, *traffic.done):
        assert verified(settled, each.id_token, audience=each.app.client["client_id"])
        assert verified(settled, each.access, options={"verify_aud": False})
        assert each.lives() == ALL


def test_move_uses_up_no_code_or_refresh_token(settled: TestTenant, second: DatabaseServer) -> None:
    traffic = Traffic(settled)
    each = traffic.sign_in(settled.register())
    waiting = Visitor(settled)
    waiting.opens("signin")
    answers: dict[str, Any] = {}

    def act() -> None:
        answers["code"] = each.app.exchange(each.code)
        answers["refresh"] = each.app.token(grant_type="refresh_token", refresh_token=each.refresh)
        answers["authorize"] = each.app.authorize()
        answers["silent"] = each.app.authorize(prompt="none")
        raw = urlencode(each.app.parameters(), doseq=True).encode()
        form = "application/x-www-form-urlencoded"
        answers["par"] = Api().post(f"{each.app.issuer}/par", raw=raw, content_type=form)
        answers["password"] = waiting.sends(email="someone@example.com", password=PASSWORD)
        answers["logout"] = each.app.browser.get(
            f"{each.app.issuer}/logout?" + urlencode({"id_token_hint": each.id_token})
        )

    with at_the_step("read in", act):
        run_command("move_tenant", settled.slug, second.name, offline=True)
    for name in ("authorize", "silent"):
        assert error_for_application(answers.pop(name)) == "temporarily_unavailable", name
    for name, response in answers.items():
        assert (response.status_code, "Retry-After" in response.headers) == (503, True), name
        assert "Location" not in response.headers
        assert "Set-Cookie" not in response.headers
    assert waiting.session is None
    assert each.lives() == ALL


def test_tokens_can_be_read_during_a_move(settled: TestTenant, second: DatabaseServer) -> None:
    each = Traffic(settled).sign_in(settled.register())
    answers: list[Any] = []
    paths = [f"{each.app.issuer}/{name}" for name in ("jwks", ".well-known/openid-configuration", "userinfo")]
    with at_the_step("read in", lambda: answers.extend(Api(token=each.access).get(path) for path in paths)):
        run_command("move_tenant", settled.slug, second.name, offline=True)
    assert [answer.status_code for answer in answers] == [200, 200, 200]


def test_restore_revives_nothing_of_before_or_after(settled: TestTenant, tmp_path: Path) -> None:
    traffic, file, keys = Traffic(settled), str(tmp_path / "settled.backup"), jwks(settled)
    kept, *users = (settled.register() for _ in range(3))
    before = traffic.sign_in(kept)
    run_command("backup_tenant", settled.slug, file)
    lost = [traffic.sign_in(kept), traffic.sign_in(settled.register())]
    begun = Visitor(settled)
    app = Application(settled, traffic.client)
    app.browser.client, app.browser.address = begun.client, begun.address
    begun.page = app.authorize()
    begun._follow()

    def look() -> None:
        # During the restore no sign-in succeeds: all that did are known after a turn.
        traffic.all_have_had_a_turn()
        lost.extend(traffic.done)

    with traffic.flowing(*users):
        with at_the_step("read in", look):
            run_command("restore_tenant", settled.slug, file, yes=True)
        traffic.has_had(2, more=lambda: len(traffic.done))
    assert {status for _, status in traffic.rejected} == {503}
    assert jwks(settled) == keys
    assert len(lost) >= 4
    for each in (before, *lost):
        assert each.lives() == NONE
    for each in traffic.done[len(lost) - 2 :]:
        assert each.lives() == ALL
    # A request that was waiting for its user does not go on either.
    begun.sends(email=kept.email, password=PASSWORD)
    assert begun.page.status_code == 400
    assert CALLBACK not in begun.page.headers.get("Location", "")


def test_deletion_ends_sign_ins_and_keys(settled: TestTenant) -> None:
    traffic = Traffic(settled, also=frozenset({400, 403, 404}))
    name = TenantDatabase.objects.get(pk=settled.id).name
    each = traffic.sign_in(settled.register())
    with traffic.flowing(settled.register(), settled.register()):
        run_command("suspend_tenant", settled.slug)
        traffic.has_had(2, more=traffic.rejected.total)
        run_command("delete_tenant", settled.slug, yes=True)
        traffic.has_had(2, more=lambda: traffic.rejected["authorize", 404])
    app = each.app
    paths = ("jwks", ".well-known/openid-configuration", "userinfo", "signin", "account", "logout", "authorize")
    for path in paths:
        assert app.browser.get(f"{app.issuer}/{path}").status_code == 404, path
    assert Api().get(f"/.well-known/oauth-authorization-server{app.issuer}").status_code == 404
    assert app.exchange(each.code).status_code == 404
    assert app.token(grant_type="refresh_token", refresh_token=each.refresh).status_code == 404
    assert Api(token=each.access).get("/authmgr/validate").status_code == 401
    assert name not in databases_on(main_server())
    assert not DataKey.objects.filter(owner=str(settled.id)).exists()

"""Two tenants with their people and applications, made for one example."""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit
from uuid import UUID

import orjson
import pyotp
from django.conf import settings
from django.core import mail as django_mail
from django.utils.timezone import now

from registry.actions import create_credential, create_service
from tenants.entering.context import in_tenant
from tests.copies import change_client, change_tenant
from tests.openapi.real_ids import root
from tests.openid.pages.visitor import Visitor
from tests.openid.relying_party import CALLBACK, challenge_of
from tests.userflow.sessions.clients import FORM
from tests.world import PASSWORD, TestTenant, User, build_tenant, new_client, unique_ip
from userflow.accounts.models import EndUser
from userflow.accounts.permissions_catalogue import BUILT_IN_ROLES, EVERY_PERMISSION, OPERATOR, SELF_PERMISSIONS
from userflow.accounts.permissions_catalogue import TENANT_ADMIN as TENANT_ADMIN_ROLE
from userflow.admins.actions import create_admin_user
from userflow.clients.actions import create_client
from userflow.mail_delivery import background
from userflow.roles.actions import bind_users, create_role

TICKET: Final = "X-Enrollment-Ticket"
# A permission of the tenant's own applications.
APPROVE: Final = "ledger:approve"
_CHIEF: Final = ("services:credentials", "audit:read", APPROVE)
VERIFIER: Final = "v" * 43
_MAILED_TOKEN = re.compile(r"^((?:p|[0-9a-f]{32})\.[A-Za-z0-9_-]{43})$", re.MULTILINE)
_LINK = re.compile(r"https?://[^\s\"<>]+token=[^\s\"<>]+")


def send(
    method: str,
    path: str,
    body: Any = None,
    *,
    token: str | None = None,
    address: str,
    raw: bytes | None = None,
    **how: Any,
) -> Any:
    """Send one request from an address, as JSON or as it is."""
    headers = dict(how.pop("headers", None) or {})
    if token:
        headers.setdefault("Authorization", f"Bearer {token}")
    data: Any = raw if raw is not None else b"" if body is None else orjson.dumps(body)
    kind = FORM if raw is not None else "application/json"
    return new_client(raise_request_exception=False).generic(
        method.upper(),
        path,
        data,
        content_type=kind if data else "",
        headers=headers,
        query_params=how.pop("query", None) or {},
        REMOTE_ADDR=address,
    )


@dataclass
class Person:
    """An honest user: what they know and have, and the address that they always use."""

    name: str
    tenant: TestTenant | None
    id: UUID
    email: str
    permissions: frozenset[str]
    username: str = ""
    password: str = PASSWORD
    address: str = field(default_factory=unique_ip)
    secret: str = ""
    backup_codes: list[str] = field(default_factory=list)
    token: str = ""
    refresh_token: str = ""
    browser: Visitor | None = None
    # Registered, but the address is not verified yet.
    pending: bool = False
    # Registered by a step of the example, when others may have used the address already.
    registered_by_rule: bool = False
    active: bool = True
    # The mails that the user's own registration has caused.
    own_mails: list["Mail"] = field(default_factory=list)

    @property
    def is_admin(self) -> bool:
        return bool(self.username)

    @property
    def strong_permissions(self) -> frozenset[str]:
        """Return what only a caller of the same rank may command; what all users have of themselves is not among it."""
        return (self.permissions & frozenset(EVERY_PERMISSION)) - frozenset(SELF_PERMISSIONS)

    @property
    def fields(self) -> dict[str, str]:
        """Return how calls for factors name the user."""
        tenant = {} if self.is_admin or self.tenant is None else {"tenant_id": str(self.tenant.id)}
        return {"email": self.email, **tenant}

    @property
    def totp(self) -> str:
        return "/webauthn/admin/totp" if self.is_admin else "/webauthn/totp"

    def call(self, method: str, path: str, body: Any = None, **how: Any) -> Any:
        """Send a request with the token of the newest session."""
        return send(method, path, body, token=how.pop("token", self.token), address=self.address, **how)

    def enter_password(self, password: str | None = None) -> Any:
        """Send the first step of a sign-in."""
        secret = self.password if password is None else password
        if self.is_admin:
            return self.call(
                "post", "/uflow/admin/auth/login", {"username": self.username, "password": secret}, token=""
            )
        assert self.tenant is not None
        body = {"client_id": str(self.tenant.client_id), "email": self.email, "password": secret}
        return self.call("post", "/uflow/auth/enduser/login", body, token="")

    def sign_in(self) -> Any:
        """Sign in, with a backup code if there is a factor; keep the tokens."""
        response = self.enter_password()
        if response.status_code == 200 and response.json().get("mfa_required") and self.backup_codes:
            body = {**self.fields, "mfa_token": response.json()["mfa_token"], "backup_code": self.backup_codes.pop()}
            response = self.call("post", f"{self.totp}/verifyLogin", body, token="")
        if response.status_code == 200 and "access_token" in response.json():
            self.token, self.refresh_token = response.json()["access_token"], response.json().get("refresh_token", "")
        return response

    def proof(self) -> dict[str, str]:
        """Return a proof for the body of a request."""
        return {"backup_code": self.backup_codes.pop()} if self.backup_codes else {"current_password": self.password}

    def enroll_totp(self) -> None:
        """Set up an authenticator app with the ticket of a new sign-in, and sign in with it."""
        ticket = {TICKET: self.enter_password().headers[TICKET]}
        begun = self.call("post", f"{self.totp}/beginSetup", self.fields, token="", headers=ticket)
        assert begun.status_code == 200, begun.content
        self.secret = begun.json()["secret"]
        code = pyotp.TOTP(self.secret).at(now())
        body = {**self.fields, "secret": self.secret, "code": code}
        done = self.call("post", f"{self.totp}/confirmSetup", body, token="", headers=ticket)
        assert done.status_code == 200, done.content
        self.backup_codes = list(done.json()["backup_codes"])

    def open_browser(self) -> Visitor:
        """Sign in at the hosted pages, in a browser that stays open."""
        assert self.tenant is not None
        self.browser = Visitor(self.tenant, address=self.address)
        self.browser.signs_in(User(self.id, self.email), password=self.password)
        if self.browser.at == "signin/verify" and self.backup_codes:
            self.browser.opens("signin/verify?method=backup_code")
            self.browser.sends(backup_code=self.backup_codes.pop(), code="")
        return self.browser


@dataclass
class Mail:
    """A mail that the platform has sent."""

    to: str
    subject: str
    links: list[str]
    tokens: list[str]
    codes: list[str]


@dataclass
class Scene:
    """What there is besides the attacker."""

    folder: Path
    tenant: TestTenant
    other_tenant: TestTenant
    people: dict[str, Person]
    app: dict[str, Any]
    # An address that is not registered yet.
    newcomer_email: str = ""
    mails: list[Mail] = field(default_factory=list)
    # Hosts to which the platform, or a caller who may decide so, sends links with tokens.
    hosts: set[str] = field(default_factory=set)
    # Things that were revoked: what was, whether it works, and whether to ask counts as a wrong password or code.
    revoked: list[tuple[str, Callable[[], bool], bool]] = field(default_factory=list)
    # Whether something has just happened that could bring revoked things back.
    has_come_back: bool = False
    # Names of applications that a person has allowed, with the scopes.
    consents: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    # Secrets of the service registry, with the permission that shows them and the tenant.
    planted: list[tuple[str, str, UUID]] = field(default_factory=list)
    backup: Path | None = None
    # What the people knew and had at the time of the backup.
    people_at_backup: dict[str, dict[str, Any]] = field(default_factory=dict)
    _mails_read: int = 0
    _unseen: list[Mail] = field(default_factory=list)

    def revoke(self, what: str, works: Callable[[], bool], *, counted: bool = False) -> None:
        """Require that something never works again."""
        self.revoked.append((what, works, counted))

    def forget_revoked(self, what: str) -> None:
        """Allow it again."""
        self.revoked = [each for each in self.revoked if each[0] != what]

    def read_mails(self) -> list[Mail]:
        """Return the mails that were sent since the last time."""
        new = self._receive()
        new, self._unseen = [*self._unseen, *new], []
        return new

    def peek_mails(self) -> list[Mail]:
        """Return the mails of a moment ago; `read_mails` returns them again."""
        new = self._receive()
        self._unseen += new
        return new

    def _receive(self) -> list[Mail]:
        assert background.settle(60)
        new = django_mail.outbox[self._mails_read :]
        self._mails_read = len(django_mail.outbox)
        read = []
        for sent in new:
            texts = [str(sent.body), *(str(part[0]) for part in getattr(sent, "alternatives", []))]
            links = [link for text in texts for link in _LINK.findall(text)]
            codes = re.findall(r"^([0-9]{6})$", str(sent.body), re.MULTILINE)
            tokens = _MAILED_TOKEN.findall(str(sent.body))
            read += [Mail(to, str(sent.subject), links, tokens, codes) for to in sent.to]
        self.mails += read
        return read

    def person_at(self, email: str) -> Person | None:
        """Return the user with this address."""
        return next((person for person in self.people.values() if person.email == email), None)

    def authorize(self, client_id: str, redirect_uri: str = CALLBACK, scope: str = "openid", **changed: str) -> str:
        """Return a link to the authorization endpoint, as an application makes it."""
        sent = {
            "client_id": client_id,
            "response_type": "code",
            "redirect_uri": redirect_uri,
            "scope": scope,
            "state": "s",
            "nonce": "n",
            "code_challenge": challenge_of(VERIFIER),
            "code_challenge_method": "S256",
            **changed,
        }
        return f"/t/{self.tenant.slug}/authorize?{urlencode(sent)}"


def build_scene(folder: Path) -> Scene:
    """Create the tenants, the people and the applications."""
    tenant, other_tenant = build_tenant("acme"), build_tenant("zephyr")
    people = {
        "ann": _end_user("ann", tenant),
        "chief": _end_user("chief", tenant),
        "admin": _admin_of(tenant, "admin"),
        "guarded": _new_admin("guarded", tenant),
        "operator": _new_admin("operator", None),
        "olga": _end_user("olga", other_tenant),
        "other": _admin_of(other_tenant, "other"),
    }
    role = create_role(tenant_id=tenant.id, by=root(), name="chief", permissions=_CHIEF)
    bind_users(tenant_id=tenant.id, by=root(), role_id=role.pk, user_ids=[people["chief"].id])
    people["chief"].permissions |= frozenset(_CHIEF)
    for name in ("chief", "guarded", "operator"):
        people[name].enroll_totp()
    for person in people.values():
        response = person.sign_in()
        assert response.status_code == 200, response.content
    row, secret = create_client(
        tenant_id=tenant.id, by=root(), name="Calendar", type="confidential", redirect_uris=[CALLBACK]
    )
    # Users of the other tenant must verify their address first.
    for home in (tenant, other_tenant):
        with in_tenant(home.id):
            EndUser.objects.update(email_verified_at=now())
    change_tenant(other_tenant.id, settings={"email_verification": "required"})
    change_client(tenant.client_id, redirect_uris=[CALLBACK])
    scene = Scene(folder, tenant, other_tenant, people, {"client_id": str(row.pk), "client_secret": secret})
    scene.newcomer_email = f"newcomer-{secrets.token_hex(5)}@example.com"
    urls = (settings.PASSWORD_RESET_URL, settings.EMAIL_VERIFICATION_URL, settings.INVITATION_URL, settings.BASE_URL)
    scene.hosts = {str(urlsplit(url).hostname) for url in urls}
    for home in (tenant, other_tenant):
        secret = f"planted-{secrets.token_hex(8)}"
        service = create_service(tenant_id=home.id, name="Ledger", type="payment", base_url="https://api.example.com")
        create_credential(tenant_id=home.id, service_id=service.pk, name="live", secret=secret)
        scene.planted.append((secret, "services:credentials", home.id))
    scene.read_mails()
    return scene


def _end_user(name: str, tenant: TestTenant) -> Person:
    address = unique_ip()
    email = f"{name}-{secrets.token_hex(5)}@example.com"
    body = {"tenant_id": str(tenant.id), "client_id": str(tenant.client_id), "email": email, "password": PASSWORD}
    response = send("post", "/uflow/user/clients/register", body, address=address)
    assert response.status_code == 201, response.content
    id = UUID(response.json()["user_id"])
    return Person(name, tenant, id, email, frozenset(SELF_PERMISSIONS), address=address)


def _admin_of(tenant: TestTenant, name: str) -> Person:
    permissions = frozenset(BUILT_IN_ROLES[TENANT_ADMIN_ROLE])
    return Person(name, tenant, tenant.admin.id, tenant.admin.email, permissions, tenant.admin.username)


def _new_admin(name: str, tenant: TestTenant | None) -> Person:
    username = f"{name}-{secrets.token_hex(5)}"
    email = f"{username}@example.com"
    user = create_admin_user(
        tenant_id=tenant.id if tenant else None, username=username, email=email, password=PASSWORD
    )[0]
    permissions = frozenset(BUILT_IN_ROLES[TENANT_ADMIN_ROLE if tenant else OPERATOR])
    return Person(name, tenant, user.pk, email, permissions, username)

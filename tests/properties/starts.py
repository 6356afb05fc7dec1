"""What an attacker starts with: one thing each."""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote_plus
from uuid import UUID

from tenants.entering.context import in_tenant
from tests.openapi.real_ids import ids_for, root
from tests.openid.pages.visitor import Visitor
from tests.openid.relying_party import CALLBACK, query_of
from tests.properties.knowledge import ATTACKER_HOST, ATTACKER_PASSWORD, Knowledge, claims_of
from tests.properties.scene import VERIFIER, Person, Scene, send
from tests.world import PASSWORD, new_client, unique_ip
from userflow.accounts.models import AdminRole, AdminUser, EndUser
from userflow.accounts.permissions_catalogue import (
    CLIENT_SCOPES,
    EVERY_PERMISSION,
    OPERATOR_PERMISSIONS,
    TENANT_PERMISSIONS,
)
from userflow.accounts.session_models import EndUserRefreshToken, EndUserTicket
from userflow.admins.actions import create_admin_user
from userflow.clients.actions import create_client

# Who holds one of these acts on the tenant's users: what happens to a user of lower rank is then no surprise.
_OVER_USERS: Final = ("endusers:", "groups:", "roles:", "invitations:", "sessions:", "directory:")


@dataclass(frozen=True)
class Credential:
    """What the attacker authenticates a request with."""

    label: str
    headers: dict[str, str]
    is_start: bool = False

    @classmethod
    def bearer(cls, label: str, token: str) -> "Credential":
        return cls(label, {"Authorization": f"Bearer {token}"})

    @classmethod
    def basic(cls, label: str, client_id: str, secret: str) -> "Credential":
        pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
        return cls(label, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"})


ANONYMOUS: Final = Credential("nothing", {})


@dataclass
class Attacker:
    """The attacker: what was given at the start, and what has been gained."""

    scene: Scene
    credentials: list[Credential] = field(default_factory=lambda: [ANONYMOUS])
    knowledge: Knowledge = field(default_factory=Knowledge)
    # Permissions of the start, and the tenant in which they count; None with permissions is the platform.
    authority: frozenset[str] = frozenset()
    tenant_id: UUID | None = None
    # The user whose session was stolen, and what the session had proven.
    victim: Person | None = None
    claims: dict[str, Any] = field(default_factory=dict)
    # Tokens that the attacker had from the start.
    tokens: set[str] = field(default_factory=set)
    browser: Visitor | None = None
    # Signs an account or a client of the attacker's own in again.
    renew: Callable[[], None] | None = None
    address: str = field(default_factory=unique_ip)

    @property
    def email(self) -> str:
        return str(self.knowledge.values["own_email"][0])

    def aim_at(self, person: Person | None) -> None:
        """Prefer what belongs to one user, None is who has not registered yet: names of several fit no record together."""
        scene = self.scene
        home = person.tenant if person else scene.other_tenant
        focus = {"email": person.email if person else scene.newcomer_email}
        if person:
            focus["user_id"] = str(person.id)
        if person and person.is_admin:
            focus["username"] = person.username
        if home:
            focus |= {"tenant_id": str(home.id), "client_id": str(home.client_id), "slug": home.slug}
        self.knowledge.focus = focus

    def commands(self, person: Person) -> bool:
        """Return whether what this attacker may do by its start covers this user.

        It covers users of its tenant who hold nothing that it lacks, if one of its permissions is about users of that kind.
        """
        if self.authority.isdisjoint(OPERATOR_PERMISSIONS) and (
            person.tenant is None or person.tenant.id != self.tenant_id
        ):
            return False
        if not person.strong_permissions <= self.authority:
            return False
        about = ("admins:",) if person.is_admin else _OVER_USERS
        return any(permission.startswith(about) for permission in self.authority - {"endusers:read"})

    def decides_for_tenants(self) -> bool:
        """Return whether settings and state of the tenant are the attacker's to change: it can close sign-in for all."""
        return not self.authority.isdisjoint({"tenants:write", "admins:write"})

    def decides_where_secrets_go(self) -> bool:
        """Return whether the attacker outranks all users of the tenant."""
        return frozenset(TENANT_PERMISSIONS) <= self.authority

    @property
    def start(self) -> Credential:
        """Return what the attacker started with, or has replaced it by."""
        return next((each for each in self.credentials if each.is_start), self.credentials[0])

    def begin_with(self, label: str, token: str) -> None:
        """Use a token as the start."""
        self.tokens.add(token)
        self.credentials = [each for each in self.credentials if not each.is_start]
        self.credentials.insert(0, replace(Credential.bearer(label, token), is_start=True))

    def gain(self, credential: Credential) -> None:
        """Use a new credential from now on, besides those before."""
        if all(known.headers != credential.headers for known in self.credentials):
            self.credentials.insert(1, credential)
            del self.credentials[6:]


Prepare = Callable[[Attacker], None]
STARTS: Final[dict[str, Prepare]] = {}


def _start(name: str) -> Callable[[Prepare], Prepare]:
    def add(prepare: Prepare) -> Prepare:
        STARTS[name] = prepare
        return prepare

    return add


def new_attacker(scene: Scene, start: str) -> Attacker:
    """Return an attacker with the knowledge that all have, and one start."""
    attacker = Attacker(scene)
    _teach_public_values(attacker)
    STARTS[start](attacker)
    return attacker


def _teach_public_values(attacker: Attacker) -> None:
    scene, knowledge = attacker.scene, attacker.knowledge
    mark = scene.tenant.slug.rpartition("-")[2]
    own = f"mallory-{mark}@{ATTACKER_HOST}"
    people = list(scene.people.values())
    knowledge.know("own_email", own)
    knowledge.know("email", scene.newcomer_email, *(person.email for person in people), own)
    knowledge.know("tenant_id", str(scene.tenant.id), str(scene.other_tenant.id))
    knowledge.know("slug", scene.tenant.slug, scene.other_tenant.slug)
    knowledge.know(
        "client_id", str(scene.tenant.client_id), str(scene.app["client_id"]), str(scene.other_tenant.client_id)
    )
    knowledge.know("user_id", *(str(person.id) for person in people))
    knowledge.know("username", f"mallory-{mark}", *(person.username for person in people if person.is_admin))
    for name in ("password", "current_password"):
        knowledge.know(name, ATTACKER_PASSWORD)
    knowledge.know("phone_number", f"+49151{int(mark, 16) % 90_000_000 + 10_000_000}")
    knowledge.know("redirect_uri", f"https://{ATTACKER_HOST}/callback", CALLBACK)
    knowledge.know("audiences", "identity-api")
    knowledge.know("roles", "tenant-admin", "operator", "chief", "user")
    knowledge.know("permissions", "services:credentials", "admins:write", "clients:write", "ledger:approve")
    knowledge.know("scopes", "services:credentials", "services:read", "clients:write", "ledger:approve")
    knowledge.know("scope", "openid", "openid email offline_access", "services:credentials", "identity-api")
    knowledge.know("code_challenge", "v_TrrpFY5YqFVaBHPQDZ4pTvDfyWkBBVoYUXzz2zsyE")
    knowledge.know("domain", ATTACKER_HOST)
    knowledge.know("name", f"mallory {mark}")
    knowledge.know("confirm", scene.tenant.slug)
    knowledge.know("reason", "lost phone")
    made: dict[tuple[str, str], str | None] = {}

    def make_id(name: str, path: str) -> str | None:
        key = (name, path.split("{")[0])
        if key not in made:
            made[key] = ids_for(path, scene.tenant).get(name)
        return made[key]

    knowledge.make_id = make_id


# --- a stolen token --------------------------------------------------------------------------------------------------


def _stolen_token(name: str) -> Prepare:
    def prepare(attacker: Attacker) -> None:
        person = attacker.scene.people[name]
        attacker.victim, attacker.claims = person, claims_of(person.token)
        attacker.authority = frozenset(attacker.claims.get("permissions", ())) & frozenset(EVERY_PERMISSION)
        attacker.tenant_id = person.tenant.id if person.tenant else None
        attacker.tokens.add(person.token)
        attacker.knowledge.learn("email", person.email)
        attacker.knowledge.learn("user_id", str(person.id))
        if person.tenant:
            attacker.knowledge.learn("tenant_id", str(person.tenant.id))
        attacker.knowledge.learn("token", person.token)
        attacker.credentials.insert(0, Credential.bearer(f"{name}'s access token", person.token))

    return prepare


for _victim in ("ann", "chief", "admin", "guarded", "operator"):
    STARTS[f"access token of {_victim}"] = _stolen_token(_victim)


@_start("ID token of ann")
def _id_token(attacker: Attacker) -> None:
    person, scene = attacker.scene.people["ann"], attacker.scene
    person.open_browser()
    assert person.browser is not None
    page = person.browser.opens(scene.authorize(str(scene.tenant.client_id)))
    assert page.status_code == 303, page.content
    code = query_of(page.headers["Location"])["code"]
    body = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": CALLBACK,
        "code_verifier": VERIFIER,
        "client_id": str(scene.tenant.client_id),
    }
    raw = "&".join(f"{key}={quote_plus(value)}" for key, value in body.items()).encode()
    response = send("post", f"/t/{scene.tenant.slug}/token", raw=raw, address=person.address)
    assert response.status_code == 200, response.content
    token = response.json()["id_token"]
    attacker.tokens.add(token)
    attacker.knowledge.learn("id_token", token)
    attacker.knowledge.learn("token", token)
    attacker.credentials.insert(0, Credential.bearer("ann's ID token", token))


def _unattended_browser(name: str) -> Prepare:
    def prepare(attacker: Attacker) -> None:
        person = attacker.scene.people[name]
        opened = person.open_browser()
        assert opened.session, opened.words
        attacker.victim, attacker.claims = person, {"acr": "aal2" if person.secret else "aal1"}
        attacker.browser = Visitor(attacker.scene.tenant, client=new_client(raise_request_exception=False))
        attacker.browser.client.cookies = opened.client.cookies.copy()
        attacker.browser.address = attacker.address

    return prepare


for _victim in ("ann", "chief"):
    STARTS[f"browser of {_victim}"] = _unattended_browser(_victim)


# --- one permission --------------------------------------------------------------------------------------------------


def _admin_with(permission: str) -> Prepare:
    def prepare(attacker: Attacker) -> None:
        role, _ = AdminRole.objects.get_or_create(
            name=f"only-{permission.replace(':', '-').replace('_', '-')}", defaults={"permissions": [permission]}
        )
        tenant = None if permission in OPERATOR_PERMISSIONS else attacker.scene.tenant
        username = f"mallory-{attacker.scene.tenant.slug}"
        user = create_admin_user(
            tenant_id=tenant.id if tenant else None,
            username=username,
            email=f"admin-{attacker.email}",
            password=PASSWORD,
        )[0]
        AdminUser.objects.get(pk=user.pk).roles.set([role])
        attacker.authority, attacker.tenant_id = frozenset({permission}), tenant.id if tenant else None

        def renew() -> None:
            body = {"username": username, "password": PASSWORD}
            response = send("post", "/uflow/admin/auth/login", body, address=unique_ip())
            if "access_token" in response.json():
                attacker.begin_with(f"token of an admin with {permission}", response.json()["access_token"])

        renew()
        attacker.renew = renew

    return prepare


def _client_with(scope: str) -> Prepare:
    def prepare(attacker: Attacker) -> None:
        _be_client(attacker, [scope])
        attacker.authority = frozenset({scope})

    return prepare


def _be_client(attacker: Attacker, scopes: list[str]) -> None:
    scene = attacker.scene
    row, secret = create_client(
        tenant_id=scene.tenant.id, by=root(), name="Machine", type="confidential", scopes=scopes
    )
    assert secret is not None
    basic = Credential.basic("client with its secret", str(row.pk), secret)

    def renew() -> None:
        raw = b"grant_type=client_credentials"
        response = send("post", "/authmgr/token", raw=raw, headers=basic.headers, address=unique_ip())
        if "access_token" in response.json():
            attacker.begin_with(f"token of a client with {scopes}", response.json()["access_token"])

    attacker.credentials.insert(0, basic)
    renew()
    attacker.renew = renew
    attacker.tenant_id = scene.tenant.id
    attacker.knowledge.learn("client_secret", secret)
    attacker.knowledge.learn("client_id", str(row.pk))


for _permission in EVERY_PERMISSION:
    STARTS[f"admin with {_permission}"] = _admin_with(_permission)
for _permission in CLIENT_SCOPES:
    STARTS[f"client with {_permission}"] = _client_with(_permission)


# --- other things ----------------------------------------------------------------------------------------------------


def _own_account(other: bool) -> Prepare:
    def prepare(attacker: Attacker) -> None:
        tenant = attacker.scene.other_tenant if other else attacker.scene.tenant
        body = {
            "tenant_id": str(tenant.id),
            "client_id": str(tenant.client_id),
            "email": attacker.email,
            "password": ATTACKER_PASSWORD,
        }
        response = send("post", "/uflow/user/clients/register", body, address=attacker.address)
        assert response.status_code == 201, response.content
        for mailed in attacker.scene.read_mails():
            if mailed.to == attacker.email and mailed.tokens:
                send("post", "/uflow/user/email/verify", {"token": mailed.tokens[0]}, address=attacker.address)
        response = send(
            "post",
            "/uflow/auth/enduser/login",
            {"client_id": body["client_id"], "email": attacker.email, "password": ATTACKER_PASSWORD},
            address=attacker.address,
        )
        assert response.status_code == 200, response.content
        token = response.json()["access_token"]
        attacker.tokens.add(token)
        attacker.knowledge.learn("email", attacker.email)
        attacker.knowledge.learn("user_id", str(claims_of(token)["sub"]))
        attacker.knowledge.learn("tenant_id", str(tenant.id))
        attacker.knowledge.learn("refresh_token", response.json()["refresh_token"])
        attacker.credentials.insert(0, Credential.bearer("token of the attacker's own account", token))

    return prepare


STARTS["account in the same tenant"] = _own_account(other=False)
STARTS["account in another tenant"] = _own_account(other=True)


@_start("address of a victim")
def _address(attacker: Attacker) -> None:
    """Know what is public, which all attackers know: addresses, ids, and the ids of public clients."""


@_start("third-party client")
def _third_party_client(attacker: Attacker) -> None:
    app = attacker.scene.app
    attacker.knowledge.learn("client_secret", app["client_secret"])
    attacker.knowledge.learn("client_id", app["client_id"])
    attacker.knowledge.know("code_verifier", VERIFIER)
    attacker.credentials.insert(0, Credential.basic("third-party client", app["client_id"], app["client_secret"]))


@_start("old mailbox of ann")
def _old_mailbox(attacker: Attacker) -> None:
    """Read the mails that Ann has followed before: their links must have ended."""
    person, scene = attacker.scene.people["ann"], attacker.scene
    person.call("post", "/uflow/auth/enduser/password/forgot", {**person.fields}, token="")
    scene.read_mails()
    mine = [mailed for mailed in scene.mails if mailed.to == person.email and mailed.tokens]
    person.password = "a pass phrase of her own 7"
    response = person.call(
        "post",
        "/uflow/auth/enduser/password/reset",
        {"token": mine[-1].tokens[0], "password": person.password},
        token="",
    )
    assert response.status_code == 200, response.content
    person.sign_in()
    for mailed in mine:
        attacker.knowledge.learn("token", *mailed.tokens)
        attacker.knowledge.learn("code", *mailed.codes)


@_start("old backup")
def _old_backup(attacker: Attacker) -> None:
    """Know the credentials of the time of a backup, which end afterwards: those of Ann's session, and her old password."""
    person = attacker.scene.people["ann"]
    attacker.knowledge.learn("refresh_token", person.refresh_token)


@_start("rows of the database")
def _database_rows(attacker: Attacker) -> None:
    """Know the digests of tokens, passwords and secrets, which must be of no use."""
    scene = attacker.scene
    person = scene.people["ann"]
    person.call("post", "/uflow/auth/enduser/password/forgot", {**person.fields}, token="")
    scene.read_mails()
    with in_tenant(scene.tenant.id):
        digests = [bytes(row.digest) for row in EndUserRefreshToken.objects.all()[:3]]
        digests += [bytes(row.digest) for row in EndUserTicket.objects.all()[:3]]
        passwords = list(EndUser.objects.values_list("password", flat=True)[:2])
    for digest in digests:
        encoded = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        for name in ("token", "refresh_token", "mfa_token", "enrollment_ticket", "client_secret"):
            attacker.knowledge.learn(name, encoded, digest.hex())
    for name in ("password", "current_password"):
        attacker.knowledge.learn(name, *passwords, ATTACKER_PASSWORD)

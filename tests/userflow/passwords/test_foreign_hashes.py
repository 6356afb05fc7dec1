"""Imported password hashes verify, and the first sign-in replaces them."""

import base64
import hashlib
import secrets
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from types import FrameType
from typing import Literal

import argon2
import bcrypt
import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher, ScryptPasswordHasher
from django.db import connections

from tenants.entering.context import in_tenant
from tests.parallel import run_concurrently
from tests.world import PASSWORD, Api, TestTenant, User
from userflow.accounts.models import AdminUser, EndUser
from userflow.credentials import foreign_hashes, passwords

Normalization = Literal["NFC", "NFD"]
SECRET = "Füße 9 horses battery"
SALT = b"0123456789abcdef"


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode().rstrip("=")


def passlib(raw: bytes) -> str:
    return b64(raw).replace("+", ".")


def pbkdf2(digest: str, rounds: int = 1000) -> bytes:
    return hashlib.pbkdf2_hmac(digest, SECRET.encode(), SALT, rounds)


BCRYPT = bcrypt.hashpw(SECRET.encode(), bcrypt.gensalt(4)).decode()
SCRYPT = hashlib.scrypt(SECRET.encode(), salt=SALT, n=16, r=8, p=1, dklen=32)
pytestmark = pytest.mark.usefixtures("production_hashes")

HASHES = {
    "bcrypt 2b": ("bcrypt", BCRYPT),
    "bcrypt 2a": ("bcrypt", BCRYPT.replace("$2b$", "$2a$")),
    "bcrypt 2y (PHP)": ("bcrypt", BCRYPT.replace("$2b$", "$2y$")),
    "bcrypt (Django)": ("bcrypt", f"bcrypt${BCRYPT}"),
    "scrypt (PHC)": ("scrypt", f"$scrypt$ln=4,r=8,p=1${b64(SALT)}${b64(SCRYPT)}"),
    "scrypt (Django)": ("scrypt", ScryptPasswordHasher().encode(SECRET, "saltsaltsaltsaltsaltsa", n=16)),
    "pbkdf2 sha256 (passlib)": ("pbkdf2", f"$pbkdf2-sha256$1000${passlib(SALT)}${passlib(pbkdf2('sha256'))}"),
    "pbkdf2 sha512 (passlib)": ("pbkdf2", f"$pbkdf2-sha512$1000${passlib(SALT)}${passlib(pbkdf2('sha512'))}"),
    "pbkdf2 sha1 (passlib)": ("pbkdf2", f"$pbkdf2$1000${passlib(SALT)}${passlib(pbkdf2('sha1'))}"),
    "pbkdf2 sha256 (PHC)": ("pbkdf2", f"$pbkdf2-sha256$i=1000,l=32${b64(SALT)}${b64(pbkdf2('sha256'))}"),
    "pbkdf2 (Django)": ("pbkdf2", PBKDF2PasswordHasher().encode(SECRET, "saltsaltsaltsaltsaltsa", 1000)),
    "argon2id (PHC)": ("argon2", argon2.PasswordHasher(1, 64, 1).hash(SECRET)),
    "argon2i (PHC)": ("argon2", argon2.PasswordHasher(1, 64, 1, type=argon2.Type.I).hash(SECRET)),
    "argon2d (PHC)": ("argon2", argon2.PasswordHasher(1, 64, 1, type=argon2.Type.D).hash(SECRET)),
    "argon2id (Django)": ("argon2", "argon2" + argon2.PasswordHasher(1, 64, 1).hash(SECRET)),
}


@pytest.mark.parametrize("name", HASHES)
def test_only_the_right_password_verifies(name: str) -> None:
    kind, encoded = HASHES[name]
    hasher = foreign_hashes.identify(encoded)
    assert hasher is not None
    assert hasher.algorithm == kind
    assert hasher.verify(SECRET, encoded)
    for wrong in ("", SECRET + "x", SECRET.lower(), SECRET[:-1]):
        assert not hasher.verify(wrong, encoded)


@pytest.mark.parametrize("name", HASHES)
def test_first_login_replaces_foreign_hash(name: str, tenant: TestTenant) -> None:
    person = tenant.register()
    with in_tenant(tenant.id):
        EndUser.objects.filter(pk=person.id).update(password=HASHES[name][1])
    login = {"client_id": str(tenant.client_id), "email": person.email}
    assert Api().post("/uflow/auth/enduser/login", {**login, "password": "wrong horse 9 b"}).status_code == 401
    for _ in range(2):
        assert Api().post("/uflow/auth/enduser/login", {**login, "password": SECRET}).status_code == 200
    with in_tenant(tenant.id):
        stored = EndUser.objects.get(pk=person.id).password
    assert stored.startswith("argon2$argon2id$v=19$m=19456,t=2,p=1$")
    assert not passwords.is_outdated(stored)


@pytest.mark.parametrize("typed", ["NFC", "NFD"])
@pytest.mark.parametrize("hashed", ["NFC", "NFD"])
@pytest.mark.parametrize("django", [False, True], ids=["phc", "django"])
def test_login_finds_the_unicode_form_that_was_hashed(
    hashed: Normalization, typed: Normalization, django: bool, tenant: TestTenant
) -> None:
    person = tenant.register()
    encoded = argon2.PasswordHasher(1, 64, 1).hash(unicodedata.normalize(hashed, SECRET))
    with in_tenant(tenant.id):
        EndUser.objects.filter(pk=person.id).update(password=f"argon2{encoded}" if django else encoded)
    login = {"client_id": str(tenant.client_id), "email": person.email}
    wrong = {**login, "password": unicodedata.normalize(typed, SECRET + "ü")}
    assert Api().post("/uflow/auth/enduser/login", wrong).status_code == 401
    right = {**login, "password": unicodedata.normalize(typed, SECRET)}
    assert Api().post("/uflow/auth/enduser/login", right).status_code == 200
    with in_tenant(tenant.id):
        stored = EndUser.objects.get(pk=person.id).password
    assert not passwords.is_outdated(stored)
    assert all(passwords.matches(unicodedata.normalize(form, SECRET), stored) for form in ("NFC", "NFD"))


def test_mixed_unicode_form_is_tried_as_typed() -> None:
    mixed = "e\u0301t\u00e9 9 horses battery"
    assert passwords.matches(mixed, argon2.PasswordHasher(1, 64, 1).hash(mixed))


@pytest.mark.parametrize(
    ("password", "verifications"),
    [
        ("only ascii letters", 1),
        ("F\u00fc\u00dfe 9 horses", 2),
        ("Fu\u0308\u00dfe 9 horses", 2),
        ("e\u0301t\u00e9 9 horses", 3),
    ],
)
def test_wrong_password_tries_only_forms_that_differ(password: str, verifications: int) -> None:
    encoded, tried = argon2.PasswordHasher(1, 64, 1).hash("another password"), []

    def trace(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is foreign_hashes.ForeignHasher.verify.__code__:
            tried.append(frame.f_locals["password"])

    for candidate, count in ((encoded, verifications), (passwords.hashed("another password"), 0), (None, 0)):
        tried.clear()
        sys.setprofile(trace)
        try:
            assert not passwords.matches(password, candidate)
        finally:
            sys.setprofile(None)
        assert len(set(tried)) == len(tried) == count


def test_parallel_first_logins_all_succeed_or_retry(tenant: TestTenant) -> None:
    person = tenant.register()
    with in_tenant(tenant.id):
        EndUser.objects.filter(pk=person.id).update(password=HASHES["bcrypt 2b"][1])
    login = {"client_id": str(tenant.client_id), "email": person.email, "password": SECRET}

    def sign_in(_: int) -> int:
        try:
            return int(Api().post("/uflow/auth/enduser/login", login).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(sign_in, range(8))) <= {200, 429, 503}


def test_first_admin_login_replaces_foreign_hash(tenant: TestTenant) -> None:
    AdminUser.objects.filter(pk=tenant.admin.id).update(password=HASHES["bcrypt 2y (PHP)"][1])
    try:
        response = Api().post("/uflow/admin/auth/login", {"username": tenant.admin.username, "password": SECRET})
        assert response.status_code == 200
        assert AdminUser.objects.get(pk=tenant.admin.id).password.startswith("argon2$argon2id$")
    finally:
        AdminUser.objects.filter(pk=tenant.admin.id).update(password=passwords.hashed(tenant.admin.password))


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "!unusable",
        SECRET,
        "5f4dcc3b5aa765d61d8327deb882cf99",
        "$2b$04$tooshort",
        BCRYPT.replace("$04$", "$31$"),
        BCRYPT.replace("$04$", "$03$"),
        f"$scrypt$ln=40,r=8,p=1${b64(SALT)}${b64(SCRYPT)}",
        f"$scrypt$ln=4,r=999,p=999${b64(SALT)}${b64(SCRYPT)}",
        f"$scrypt$ln=4,r=8,p=1${b64(SALT)}${b64(b'short')}",
        f"scrypt$15$salt$8$1${b64(SCRYPT)}",
        f"$pbkdf2-sha256$9999999${b64(SALT)}${b64(pbkdf2('sha256'))}",
        f"$pbkdf2-sha256$0${b64(SALT)}${b64(pbkdf2('sha256'))}",
        f"$pbkdf2-md5$1000${b64(SALT)}${b64(pbkdf2('sha256'))}",
        "$argon2id$v=19$m=9999999,t=1,p=1$c29tZXNhbHQ$aGFzaA",
        "$argon2id$v=19$m=64,t=999,p=1$c29tZXNhbHQ$aGFzaA",
        "$2b$04$" + "!" * 53,
        HASHES["scrypt (PHC)"][1] + "\n",
    ],
    # Salts are random, but test ids must be the same in every process.
    ids=range(18),
)
def test_invalid_or_costly_hash_is_not_recognised(encoded: str) -> None:
    assert foreign_hashes.identify(encoded) is None
    assert not any(hasher.verify(SECRET, encoded) for hasher in foreign_hashes.FOREIGN_HASHERS)
    assert not passwords.matches(SECRET, encoded)


def test_bcrypt_ignores_bytes_beyond_72() -> None:
    long = "p" * 80
    encoded = bcrypt.hashpw(long.encode()[:72], bcrypt.gensalt(4)).decode()
    hasher = foreign_hashes.BcryptHasher()
    assert hasher.verify(long, encoded)
    assert not hasher.verify("p" * 71, encoded)


def test_password_matches_in_any_unicode_composition() -> None:
    encoded = passwords.hashed("caf\u00e9 9 battery horses")
    assert passwords.matches("cafe\u0301 9 battery horses", encoded)


S, D = b64(SALT), b64(b"d" * 32)
COMMON = [
    f"pbkdf2_sha256$1000000$salt${D}",  # Django 5.2
    f"$pbkdf2-sha256$600000${S}${D}",  # OWASP
    f"$pbkdf2-sha512$210000${S}${b64(b'd' * 64)}",  # OWASP
    f"$pbkdf2$1300000${S}${b64(b'd' * 20)}",  # OWASP
    "$2b$12$" + "." * 53,
    "$2y$13$" + "." * 53,
    f"$argon2id$v=19$m=65536,t=3,p=4${S}${D}",  # argon2-cffi
    f"$argon2id$v=19$m=65536,t=4,p=1${S}${D}",  # PHP
    f"argon2$argon2id$v=19$m=102400,t=2,p=8${S}${D}",  # Django
    f"$scrypt$ln=17,r=8,p=1${S}${D}",  # OWASP
    f"scrypt$16384$salt$8$5${D}",  # Django
]
COSTLY = [
    f"pbkdf2_sha256$2000000$salt${D}",
    f"$pbkdf2$1000000${S}${b64(b'd' * 128)}",  # seven blocks, each as costly as the first
    f"$pbkdf2-sha256$1000000${S}${b64(b'd' * 64)}",
    "$2b$14$" + "." * 53,
    f"$argon2id$v=19$m=262144,t=20,p=1${S}${D}",
    f"argon2$argon2id$v=19$m=65536,t=8,p=1${S}${D}",
    f"$argon2id$v=19$m=1024,t=1,p=9${S}${D}",
    f"$scrypt$ln=17,r=8,p=2${S}${D}",
    f"$scrypt$ln=18,r=8,p=1${S}${D}",
]
# Well-formed, but no library verifies these.
BROKEN = [
    "$2b$12$" + "a" * 53,
    f"$scrypt$ln=1,r=255,p=900${S}${D}",
    f"$scrypt$ln=16,r=1,p=1${S}${D}",
    f"$argon2id$v=19$m=1024,t=1,p=0${S}${D}",
    f"$argon2id$v=19$m=8,t=1,p=4${S}${D}",
    f"$argon2id$v=19$m=1024,t=1,p=1$c2E${D}",
]


@pytest.mark.parametrize("encoded", COMMON)
def test_common_default_parameters_are_accepted(encoded: str) -> None:
    hasher = foreign_hashes.identify(encoded)
    assert hasher is not None
    assert not hasher.verify(SECRET, encoded)


@pytest.mark.parametrize("encoded", [*COSTLY, *BROKEN])
def test_import_rejects_costly_or_unverifiable_hash(tenant: TestTenant, encoded: str) -> None:
    row = {"email": f"dear-{secrets.token_hex(6)}@example.com", "password_hash": encoded}
    body = {"tenant_id": str(tenant.id), "rows": [row]}
    said = tenant.api.post("/uflow/admin/enduser/import", body).json()
    assert (said["created"], [found["reason"][:3] for found in said["report"]]) == (0, ["Not"])
    assert foreign_hashes.identify(encoded) is None


@pytest.mark.parametrize("encoded", BROKEN)
def test_login_with_stored_broken_hash_is_rejected(tenant: TestTenant, encoded: str) -> None:
    person = tenant.register()
    with in_tenant(tenant.id):
        EndUser.objects.filter(pk=person.id).update(password=encoded)
    login = {"client_id": str(tenant.client_id), "email": person.email, "password": SECRET}
    assert Api().post("/uflow/auth/enduser/login", login).status_code == 401


@pytest.mark.parametrize("encoded", ["$2b$13$" + "." * 53, f"argon2$argon2id$v=19$m=65536,t=5,p=1${S}${D}"])
def test_slow_hashes_do_not_block_other_tenants(tenant: TestTenant, other_tenant: TestTenant, encoded: str) -> None:
    costly, other_user = [tenant.register() for _ in range(6)], other_tenant.register()
    with in_tenant(tenant.id):
        EndUser.objects.filter(pk__in=[person.id for person in costly]).update(password=encoded)

    def sign_in(person: User) -> int:
        body = {"client_id": str(tenant.client_id), "email": person.email, "password": SECRET}
        try:
            return int(Api().post("/uflow/auth/enduser/login", body).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        tries = [pool.submit(sign_in, person) for person in costly]
        # More concurrent logins would use the slots of other tenants.
        for _ in range(5):
            other_tenant.sign_in(other_user)
        assert {done.result() for done in tries} <= {401, 503}


@pytest.mark.parametrize("name", ["ours", "bcrypt 2b"])
def test_busy_hasher_does_not_count_an_attempt(tenant: TestTenant, name: str) -> None:
    person = tenant.register()
    encoded = HASHES[name][1] if name in HASHES else None
    if encoded:
        with in_tenant(tenant.id):
            EndUser.objects.filter(pk=person.id).update(password=encoded)
    login = {"client_id": str(tenant.client_id), "email": person.email, "password": SECRET if encoded else PASSWORD}
    wrong = {**login, "password": "wrong horse 9 b"}
    assert [Api().post("/uflow/auth/enduser/login", wrong).status_code for _ in range(4)] == [401] * 4
    lane = passwords.FOREIGN if encoded else passwords.OWN
    with ExitStack() as full:
        for _ in range(lane.waiting.number):
            full.enter_context(lane.waiting.acquire())
        assert [Api().post("/uflow/auth/enduser/login", login).status_code for _ in range(3)] == [503] * 3
    # The four compared attempts still count: the fifth locks.
    assert Api().post("/uflow/auth/enduser/login", wrong).status_code == 401
    assert Api().post("/uflow/auth/enduser/login", login).status_code == 429


@pytest.mark.quiet_machine
@pytest.mark.parametrize("kind", ["bcrypt", "pbkdf2", "scrypt"])
def test_burst_of_first_sign_ins_is_served(tenant: TestTenant, kind: str) -> None:
    salt = "saltsaltsaltsaltsaltsa"
    encoded = {
        "bcrypt": lambda: bcrypt.hashpw(SECRET.encode(), bcrypt.gensalt(7)).decode(),
        "pbkdf2": lambda: PBKDF2PasswordHasher().encode(SECRET, salt, 25_000),
        "scrypt": lambda: ScryptPasswordHasher().encode(SECRET, salt, n=2**12),
    }[kind]()
    # More than half of what a worker hashes at most, and fewer than the connections of this process.
    people, own = [tenant.register() for _ in range(18)], tenant.register()
    with in_tenant(tenant.id):
        EndUser.objects.filter(pk__in=[person.id for person in people]).update(password=encoded)

    def sign_in(person: User, password: str = SECRET) -> int:
        body = {"client_id": str(tenant.client_id), "email": person.email, "password": password}
        return int(Api().post("/uflow/auth/enduser/login", body).status_code)

    # With one of the platform's own hashes, which does not wait for them.
    calls = [partial(sign_in, person) for person in people]
    assert run_concurrently([*calls, partial(sign_in, own, PASSWORD)]) == [200] * (len(people) + 1)

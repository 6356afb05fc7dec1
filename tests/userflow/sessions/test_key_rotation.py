"""Signing keys are rotated while requests go on: no token is rejected, nothing fails."""

import threading
import time
from datetime import timedelta
from io import StringIO
from typing import Any

import jwt
import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.utils.timezone import now

from identity_platform.audit.models import PlatformEvent
from tests.userflow.sessions.test_refresh import refresh
from tests.world import Api, TestTenant, build_tenant, sign_in_admin
from userflow.sessions import signing
from userflow.sessions.models import SigningKey

VALIDATE = "/authmgr/validate"
JWKS = "/.well-known/jwks.json"


@pytest.fixture(scope="module")
def tenant(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """A tenant of this file's own: its admin signs in again and again, so no other test may give it a factor."""
    with django_db_blocker.unblock():
        return build_tenant("keys")


def command(*arguments: str) -> str:
    out = StringIO()
    call_command("rotate_signing_keys", *arguments, stdout=out)
    return out.getvalue()


def kid_of(token: str) -> str:
    return str(jwt.get_unverified_header(token)["kid"])


def published() -> set[str]:
    return {key["kid"] for key in Api().get(JWKS).json()["keys"]}


def test_next_key_is_published_before_it_signs(tenant: TestTenant) -> None:
    # It outruns those that other tests have announced: one of them might begin to sign in the middle of this one.
    command("--at-once")
    before = kid_of(sign_in_admin(tenant.admin.username)["access_token"])
    command()
    key = SigningKey.objects.latest("created_at")
    assert key.kid in published()
    assert timedelta(minutes=9) < key.signs_from - now() <= timedelta(minutes=10)
    assert kid_of(sign_in_admin(tenant.admin.username)["access_token"]) == before
    SigningKey.objects.filter(pk=key.pk).update(signs_from=now())
    signing.forget()
    assert kid_of(sign_in_admin(tenant.admin.username)["access_token"]) == key.kid
    assert tenant.api.get(VALIDATE).status_code == 200


def test_immediate_rotation_overtakes_a_published_one(tenant: TestTenant) -> None:
    command()
    announced = SigningKey.objects.latest("created_at")
    command("--at-once")
    newest = SigningKey.objects.latest("created_at")
    SigningKey.objects.filter(pk=announced.pk).update(signs_from=now() + timedelta(milliseconds=1))
    signing.forget()
    assert kid_of(sign_in_admin(tenant.admin.username)["access_token"]) == newest.kid


def test_old_keys_verify_until_last_token_expires(tenant: TestTenant) -> None:
    signer = signing.signer().kid
    command("--at-once")
    until = SigningKey.objects.get(pk=signer).verifies_until
    assert until is not None
    assert timedelta(hours=23) < until - now() <= timedelta(hours=24)


def test_requests_succeed_during_rotations(tenant: TestTenant) -> None:
    person = tenant.register()
    old = tenant.sign_in(person)
    stop, statuses = threading.Event(), []

    def work(step: Any) -> None:
        try:
            while not stop.is_set():
                statuses.append(step())
        finally:
            connections.close_all()

    def reads_with_the_old_token() -> int:
        return int(Api(token=old["access_token"]).get(VALIDATE).status_code)

    def signs_in_and_reads() -> int:
        return int(tenant.as_user(person).get(VALIDATE).status_code)

    def refreshes() -> int:
        pair = tenant.sign_in(person)
        return int(refresh(pair["refresh_token"]).status_code)

    threads = [threading.Thread(target=work, args=(step,)) for step in (reads_with_the_old_token, signs_in_and_reads)]
    threads.append(threading.Thread(target=work, args=(refreshes,)))
    for thread in threads:
        thread.start()
    for rotation in range(6):
        command("--at-once")
        deadline = time.monotonic() + 60
        while len(statuses) < 8 * (rotation + 1) and time.monotonic() < deadline:
            time.sleep(0.02)
    stop.set()
    for thread in threads:
        thread.join()
    assert len(statuses) >= 48
    assert set(statuses) == {200}


def test_key_of_another_process_is_read_at_first_token(tenant: TestTenant) -> None:
    stale = signing.key_set()
    command("--at-once")
    token = sign_in_admin(tenant.admin.username)["access_token"]
    # As a process stands that read its keys a moment before the rotation.
    signing._sets[None] = stale
    assert kid_of(token) not in stale.verifiers
    assert Api(token=token).get(VALIDATE).status_code == 200


def test_withdrawn_key_is_rejected_and_replaced(tenant: TestTenant) -> None:
    command("--at-once")
    leaked = signing.signer().kid
    token = sign_in_admin(tenant.admin.username)["access_token"]
    command(f"--withdraw={leaked}")
    assert leaked not in published()
    assert Api(token=token).get(VALIDATE).status_code == 401
    assert Api(token=sign_in_admin(tenant.admin.username)["access_token"]).get(VALIDATE).status_code == 200
    assert PlatformEvent.objects.filter(action="signing_key.withdrawn", target_id=leaked).count() == 1
    with pytest.raises(CommandError, match="No valid key"):
        command(f"--withdraw={leaked}")


def test_key_status_lists_valid_keys_without_secrets() -> None:
    shown = command("--status")
    keys = {line.split()[0]: line for line in shown.splitlines()}
    assert set(keys) == published()
    assert "signing" in keys[signing.signer().kid]
    assert sum(" signing " in line for line in keys.values()) == 1


def test_jwks_is_cacheable_without_private_keys(api: Api) -> None:
    response = api.get(JWKS)
    assert response.headers["Cache-Control"] == "public, max-age=300"
    for key in response.json()["keys"]:
        assert set(key) == {"crv", "kty", "x", "y", "use", "alg", "kid"}
    stored = SigningKey.objects.first()
    assert stored is not None
    assert b"PRIVATE" not in bytes(stored.private_sealed)


def test_key_rotation_is_audited() -> None:
    command("--at-once")
    kid = signing.signer().kid
    assert PlatformEvent.objects.get(action="signing_key.rotated", target_id=kid).details == {"at_once": True}

"""Target 15: CPU of verifying a TOTP code and a passkey, against the read of target 1 in the same run.

A step and a challenge work once, so every request is one of its own, made before its round and sent once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.utils.timezone import now
from django_otp.oath import totp

from bench import servers, world
from bench.authenticator import Authenticator
from bench.measures.reads import cost
from bench.rounds import Sample, Subject, ratio, sample
from bench.run import Row, Run
from identity_platform.crypto import SealContext, seal
from mfa.totp import engine
from mfa.totp.models import EndUserTotpSecret
from mfa.webauthn import queries
from mfa.webauthn.models import EndUserPasskey
from tenants.entering.context import in_tenant, tenant_atomic
from userflow.accounts.models import EndUser
from userflow.accounts.realms import END_USERS
from userflow.credentials import tickets
from userflow.signin.proofs import PASSWORD_AMR

MOST = 1.5
# Requests of a round: no more than a slow machine sends before the codes expire.
PEOPLE = 500


@dataclass(frozen=True)
class Enrolled:
    """A user with both factors."""

    id: UUID
    email: str
    secret: bytes
    authenticator: Authenticator


def measure(run: Run) -> list[Row]:
    """Target 15: TOTP verify and passkey finish; and, without a target, the same as a login's second step."""
    [tenant] = world.tenants_with_users(1, run.sizes.users, run.say)
    users = _enrolled(tenant)
    reads = [world.get(f"/uflow/user/enduser/{tenant.tenant_id}/{person.id}", tenant.token) for person in users]
    makers: dict[str, Callable[[], list[bytes]]] = {
        "read": lambda: reads,
        "totp": lambda: _codes(tenant, users, waits=False),
        "passkey": lambda: _assertions(tenant, users, waits=False),
        "totp_login": lambda: _codes(tenant, users, waits=True),
        "passkey_login": lambda: _assertions(tenant, users, waits=True),
    }
    taken: dict[str, list[Sample]] = {name: [] for name in makers}
    with servers.platform(run.home) as platform:
        for number in range(-1, run.rounds):  # the first one warms up
            for name in makers if number % 2 == 0 else reversed(makers):
                run.say(f"round {number + 1} of {run.rounds}: {name}")
                subject = Subject(name, platform, makers[name](), once=True)
                found = sample(run.home, subject, run.seconds)
                if number >= 0:
                    taken[name].append(found)
    _removed(tenant)
    run.raw["factors"] = {name: [asdict(one) for one in samples] for name, samples in taken.items()}
    return [
        _row(taken, "totp", "TOTP verify: server CPU", wanted=True),
        _row(taken, "passkey", "passkey finish: server CPU", wanted=True),
        _row(taken, "totp_login", "TOTP verify that completes a login: server CPU", wanted=False),
        _row(taken, "passkey_login", "passkey finish that completes a login: server CPU", wanted=False),
    ]


def _row(taken: dict[str, list[Sample]], name: str, what: str, *, wanted: bool) -> Row:
    found = ratio(taken, name, "read", "server_us")
    return Row(
        "15",
        what,
        ours=cost(taken[name]),
        against=f"GET of one end user: {cost(taken['read'])}",
        ratio=found,
        wanted=f"≤ {MOST}" if wanted else "no target",
        met=found <= MOST or not wanted,
    )


def _enrolled(tenant: world.BenchTenant) -> list[Enrolled]:
    """Return the tenant's users, each with a confirmed secret and a passkey; factors of an earlier run are replaced."""
    pairs = zip(tenant.users[:PEOPLE], tenant.emails[:PEOPLE], strict=True)
    users = [
        Enrolled(
            user_id,
            email,
            engine.new_secret(),
            Authenticator(user_id, settings.WEBAUTHN_ORIGINS[0], settings.WEBAUTHN_RP_ID),
        )
        for user_id, email in pairs
    ]
    with in_tenant(tenant.tenant_id), tenant_atomic():
        EndUserTotpSecret.objects.all().delete()
        EndUserPasskey.objects.all().delete()
        EndUserTotpSecret.objects.bulk_create(_secret(person) for person in users)
        EndUserPasskey.objects.bulk_create(_passkey(person) for person in users)
        EndUser.objects.filter(pk__in=[person.id for person in users]).update(mfa_methods=["webauthn", "totp"])
    return users


def _removed(tenant: world.BenchTenant) -> None:
    """Remove the factors: the users sign in with a password alone in other measurements."""
    with in_tenant(tenant.tenant_id), tenant_atomic():
        EndUserTotpSecret.objects.all().delete()
        EndUserPasskey.objects.all().delete()
        EndUser.objects.exclude(mfa_methods=[]).update(mfa_methods=[])


def _secret(person: Enrolled) -> EndUserTotpSecret:
    row = EndUserTotpSecret(user_id=person.id, confirmed_at=now(), expires_at=now() + timedelta(minutes=10))
    place = SealContext(
        tenant=END_USERS.owner(),
        table=EndUserTotpSecret._meta.db_table,
        column="secret_sealed",
        row=f"{person.id}/{row.pk}",
    )
    row.secret_sealed = seal(person.secret, data_key=END_USERS.data_key(), context=place)
    return row


def _passkey(person: Enrolled) -> EndUserPasskey:
    return EndUserPasskey(
        user_id=person.id,
        credential_id=person.authenticator.credential_id,
        public_key=person.authenticator.public_key(),
        aaguid=UUID(int=0),
        transports=["usb"],
        backup_eligible=False,
        backed_up=False,
    )


def _codes(tenant: world.BenchTenant, users: list[Enrolled], *, waits: bool) -> list[bytes]:
    """Return a right code of each user, for an unused time step."""
    with in_tenant(tenant.tenant_id), tenant_atomic():
        EndUserTotpSecret.objects.update(last_step=None)
        waiting = [_ticket(tenant, person) if waits else {} for person in users]
    path = f"/webauthn/totp/verify{'Login' if waits else ''}"
    return [
        _post(tenant, path, person, {"code": f"{totp(person.secret, t0=0):06d}", **ticket})
        for person, ticket in zip(users, waiting, strict=True)
    ]


def _assertions(tenant: world.BenchTenant, users: list[Enrolled], *, waits: bool) -> list[bytes]:
    """Return a response of each user to a challenge of their own."""
    with in_tenant(tenant.tenant_id), tenant_atomic():
        waiting = [_ticket(tenant, person) if waits else {} for person in users]
        challenges = [queries.open_challenge(END_USERS, queries.AUTHENTICATION, user_id=person.id) for person in users]
    return [
        _post(
            tenant,
            "/webauthn/enduser/finishAuthentication",
            person,
            {"response": person.authenticator.respond(challenge), **ticket},
        )
        for person, challenge, ticket in zip(users, challenges, waiting, strict=True)
    ]


def _ticket(tenant: world.BenchTenant, person: Enrolled) -> dict[str, str]:
    user = EndUser(pk=person.id)
    ticket = tickets.issue_ticket(END_USERS, user, tickets.SECOND_STEP, client_id=tenant.client_id, amr=PASSWORD_AMR)
    return {"mfa_token": ticket}


def _post(tenant: world.BenchTenant, path: str, person: Enrolled, members: dict[str, object]) -> bytes:
    body = {"tenant_id": str(tenant.tenant_id), "email": person.email, **members}
    return world.post(path, json.dumps(body).encode())

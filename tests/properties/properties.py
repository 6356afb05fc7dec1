"""The properties: what must hold after every step of the attacker.

Each raises Violation. They ask the platform through its own doors; only `credentials_of` reads rows, to see what was added.
"""

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tenants.entering.context import in_tenant
from tenants.states import Purpose
from tests.properties.knowledge import ATTACKER_HOST, ATTACKER_PASSWORD, claims_of
from tests.properties.scene import Mail, Person, Scene
from tests.properties.starts import Attacker
from userflow.accounts.models import AdminUser, EndUser
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION, SELF_PERMISSIONS

Credentials = dict[str, tuple[Any, ...] | None]
# Positions in what `credentials_of` returns: whether the user is active is no credential.
_NAMES: Final = ("password", "e-mail address", "authenticator app", "backup codes", "passkeys", "phones", "activity")


class Violation(AssertionError):
    """A property does not hold."""


def credentials_of(scene: Scene) -> Credentials:
    """Return each user's credentials as stored: password, address, factors, and whether the user is active."""
    read: Credentials = dict.fromkeys(scene.people)
    for tenant in (scene.tenant, scene.other_tenant):
        people = [person for person in scene.people.values() if person.tenant is tenant and not person.is_admin]
        try:
            with in_tenant(tenant.id, Purpose.INSPECT):
                read |= _read(EndUser, people)
        except Exception:  # a tenant that is suspended, deleted or moving
            read |= dict.fromkeys([person.name for person in people], None)
    return read | _read(AdminUser, [person for person in scene.people.values() if person.is_admin])


def _read(model: Any, people: list[Person]) -> Credentials:
    factors = ["totp_secrets", "backup_codes", "passkeys", *(["phones"] if model is EndUser else [])]
    rows = model.objects.filter(pk__in=[person.id for person in people]).prefetch_related(*factors)
    by_id = {row.pk: row for row in rows}
    return {person.name: _values(by_id[person.id]) if person.id in by_id else None for person in people}


def _values(row: Any) -> tuple[Any, ...]:
    apps = frozenset(app.pk for app in row.totp_secrets.all() if app.confirmed_at)
    codes = frozenset(bytes(code.digest) for code in row.backup_codes.all())
    passkeys = frozenset(passkey.pk for passkey in row.passkeys.all())
    phones = frozenset(phone.pk for phone in row.phones.all()) if hasattr(row, "phones") else frozenset()
    return row.password, row.email, apps, codes, passkeys, phones, row.active


def only_the_user_changes_credentials(
    attacker: Attacker, before: Credentials, after: Credentials, *, as_victim: bool
) -> None:
    """A user's password, address and factors change by the user's own proof, or by a caller whose start outranks the user.

    `as_victim`: the attacker's request was made in the session of its victim, which proves nothing.
    """
    for name, person in attacker.scene.people.items():
        old, new = before.get(name), after.get(name)
        if old == new or old is None:
            continue
        is_own = as_victim and person is attacker.victim
        if attacker.commands(person) and not is_own:
            continue
        if new is None:
            if not (is_own or attacker.decides_for_tenants()):
                raise Violation(f"{name} is gone")
            continue
        changed = [what for what, one, other in zip(_NAMES, old, new, strict=True) if one != other]
        if is_own and changed == ["activity"]:
            continue
        raise Violation(f"{' and '.join(changed)} of {name} changed without a proof of {name}")


def tokens_stay_within_the_start(attacker: Attacker, tokens: Iterable[str]) -> None:
    """A token that the attacker gets names no user and no permission that its start did not have."""
    people = {str(person.id): person for person in attacker.scene.people.values()}
    for token in tokens:
        if token in attacker.tokens:
            continue
        claims = claims_of(token)
        person = people.get(str(claims.get("sub")))
        if person is not None and not attacker.commands(person):
            _subject_is_allowed(attacker, person, claims)
        granted = {*claims.get("permissions", ()), *str(claims.get("scope", "")).split()} & frozenset(EVERY_PERMISSION)
        allowed = attacker.authority | frozenset(SELF_PERMISSIONS)
        if beyond := granted - allowed:
            raise Violation(f"a token of the attacker carries {', '.join(sorted(beyond))}")


def _subject_is_allowed(attacker: Attacker, person: Person, claims: dict[str, Any]) -> None:
    client = str(claims.get("client_id") or claims.get("azp") or claims.get("aud"))
    if (person.name, client) in attacker.scene.consents:
        return
    if person is not attacker.victim:
        raise Violation(f"the attacker has a token of {person.name}")
    # A session that was stolen can be used; it must not become stronger, younger or another one.
    for claim in ("acr", "auth_time"):
        if claim in attacker.claims and str(claims.get(claim, "")) > str(attacker.claims[claim]):
            raise Violation(f"{claim} of {person.name}'s stolen session has risen")


def sessions_prove_nothing(attacker: Attacker, body: object, *, as_victim: bool) -> None:
    """No proof, and no ticket to enroll a factor, is issued to a stolen session."""
    if as_victim and isinstance(body, dict) and body.get("proof_token"):
        raise Violation("a stolen session has proven something")


def secrets_stay_with_their_holders(attacker: Attacker, text: str) -> None:
    """A secret of the service registry is shown to no caller without the permission to read it."""
    for secret, permission, tenant_id in attacker.scene.planted:
        if secret not in text:
            continue
        is_platform = attacker.tenant_id is None and bool(attacker.authority)
        if permission not in attacker.authority or not (is_platform or attacker.tenant_id == tenant_id):
            raise Violation(f"a secret was shown without {permission}")


def mails_lead_home(attacker: Attacker, mails: Iterable[Mail]) -> None:
    """A link with a token leads to a host of the platform, or to one that a caller who outranks its users has set."""
    if attacker.decides_where_secrets_go():
        return
    for mailed in mails:
        if mailed.to.endswith(ATTACKER_HOST):
            continue
        for link in mailed.links:
            if urlsplit(link).hostname not in attacker.scene.hosts:
                raise Violation(f"the mail {mailed.subject!r} leads to {urlsplit(link).hostname}")


def codes_go_to_allowed_applications(attacker: Attacker, person: Person, client_id: str, address: str) -> None:
    """A browser brings a code only to an application that its user has allowed, or to the tenant's own."""
    parts = urlsplit(address)
    if "code" not in parse_qs(parts.query):
        return
    if parts.hostname == ATTACKER_HOST and not attacker.decides_where_secrets_go():
        if (person.name, client_id) not in attacker.scene.consents:
            raise Violation(f"the browser of {person.name} brings a code to {parts.hostname}")
    elif client_id == attacker.scene.app["client_id"] and (person.name, client_id) not in attacker.scene.consents:
        raise Violation(f"an application gets a code of {person.name} without consent")


def nothing_revoked_works(scene: Scene, *, also_counted: bool) -> None:
    """What was revoked, withdrawn, erased or removed never works again, not even after a restore.

    `also_counted`: also what the platform counts as a wrong password or code of the user, who has few of them.
    """
    for what, works, is_counted in scene.revoked:
        if (also_counted or not is_counted) and works():
            raise Violation(f"{what} works again")


def passwords_of_others_do_not_work(scene: Scene) -> None:
    """The password that another person has registered an address with never signs in its owner's verified user."""
    for person in scene.people.values():
        if person.is_admin or person.pending or not person.registered_by_rule:
            continue
        response = person.enter_password(ATTACKER_PASSWORD)
        if response.status_code == 200:
            raise Violation(f"{person.name} can be signed in with the password of another person")


def victims_can_sign_in(attacker: Attacker) -> None:
    """Users sign in from their own address with their own credentials; no budget of theirs was spent by the attacker."""
    if attacker.decides_for_tenants():
        return
    for person in attacker.scene.people.values():
        if attacker.commands(person) or person is attacker.victim or person.pending or not person.active:
            continue
        response = person.sign_in() if person.backup_codes else person.enter_password()
        if response.status_code != 200:
            raise Violation(f"{person.name} cannot sign in: {response.status_code} {_code(response)}")


def _code(response: Any) -> str:
    try:
        body = response.json()
    except ValueError:
        return ""
    error = body.get("error") if isinstance(body, dict) else ""
    return str(error.get("code") if isinstance(error, dict) else body.get("code", error))

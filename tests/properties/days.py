"""The days of honest users, admins and the operator: what happens beside the attacker.

Each step is a function of the scene and of drawn numbers. It returns what to print, or "" if it was not possible. None of them
knows the attacker: they do what people do, and what the platform sends to a user reaches this user.
"""

import re
import secrets
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final
from uuid import UUID

import jwt
import pyotp
from django.test.utils import override_settings
from django.utils.timezone import now

from tests.properties.calls import Draw
from tests.properties.scene import Person, Scene, send
from tests.tenants.conftest import run_command
from tests.world import PASSWORD, unique_ip
from userflow.accounts.permissions_catalogue import SELF_PERMISSIONS
from userflow.sessions import signing

Step = Callable[[Scene, Draw], str]


def _users(scene: Scene) -> list[Person]:
    return [person for person in scene.people.values() if not person.is_admin and person.active and not person.pending]


def _any(people: list[Person], draw: Draw) -> Person | None:
    return people[draw(60) % len(people)] if people else None


def token_works(person: Person, token: str) -> bool:
    """Return whether an access token is accepted."""
    return bool(send("get", "/authmgr/validate", token=token, address=person.address).status_code == 200)


def _refresh_works(person: Person, token: str) -> bool:
    client = f"&client_id={person.tenant.client_id}" if person.tenant and not person.is_admin else ""
    raw = f"grant_type=refresh_token&refresh_token={token}{client}".encode()
    return bool(send("post", "/authmgr/token", raw=raw, address=unique_ip()).status_code == 200)


def _revoke_session(scene: Scene, person: Person, why: str) -> None:
    if person.token:
        token, refresh = person.token, person.refresh_token
        scene.revoke(f"the access token of {person.name}, {why},", lambda: token_works(person, token))
        if refresh:
            scene.revoke(
                f"the refresh token of {person.name}, {why},", lambda: _refresh_works(person, refresh), counted=True
            )
    person.token = person.refresh_token = ""


# --- users -----------------------------------------------------------------------------------------------------------


def sign_in(scene: Scene, draw: Draw) -> str:
    person = _any([each for each in scene.people.values() if each.active and not each.pending], draw)
    if person is None:
        return ""
    return f"{person.name} signs in: {person.sign_in().status_code}"


def sign_out(scene: Scene, draw: Draw) -> str:
    person = _any([each for each in scene.people.values() if each.token], draw)
    if person is None or person.call("post", "/authmgr/logout", {}).status_code != 200:
        return ""
    _revoke_session(scene, person, "who has signed out")
    return f"{person.name} signs out"


def change_password(scene: Scene, draw: Draw) -> str:
    person = _any([each for each in scene.people.values() if each.token and each.active and not each.pending], draw)
    if person is None:
        return ""
    new = f"a new pass phrase {secrets.token_hex(4)}"
    response = person.call("post", "/authmgr/profile/password", {**person.proof(), "new_password": new})
    if response.status_code == 200:
        _replace_password(scene, person, new)
    return f"{person.name} changes the password: {response.status_code}"


def _replace_password(scene: Scene, person: Person, new: str) -> None:
    old, person.password = person.password, new
    scene.forget_revoked(_old_password_of(person))
    scene.revoke(_old_password_of(person), lambda: person.enter_password(old).status_code == 200, counted=True)


def _old_password_of(person: Person) -> str:
    return f"the old password of {person.name}"


def forget_password(scene: Scene, draw: Draw) -> str:
    people = [each for each in scene.people.values() if each.active and not each.pending]
    own_users = [each for each in people if each.tenant is scene.tenant and not each.is_admin]
    person = _any(own_users if draw(2) else people, draw)
    if person is None:
        return ""
    kind = "admin" if person.is_admin else "enduser"
    fields = {"email": person.email} if person.is_admin else person.fields
    response = person.call("post", f"/uflow/auth/{kind}/password/forgot", fields, token="")
    return f"{person.name} forgets the password: {response.status_code}"


def follow_mail(scene: Scene, draw: Draw) -> str:
    """Follow the newest link in a user's mailbox; a user who has just registered first tries the one of the registration."""
    people = [person for person in scene.people.values() if any(_open_mails(scene, person))]
    person = _any(people, draw)
    if person is None:
        return ""
    mails = _open_mails(scene, person)
    own = [mailed for mailed in person.own_mails if mailed.links] if person.pending else []
    for mailed in [*own, mails[-1]]:
        mailed.links.clear()
        response = _follow(scene, person, mailed.tokens[0], mailed.subject)
        if response is not None and response.status_code < 300:
            break
    else:
        return f"{person.name} follows a link in vain: {mails[-1].subject}"
    return f"{person.name} follows the link: {mailed.subject.partition(': ')[2] or mailed.subject}"


def _open_mails(scene: Scene, person: Person) -> list[Any]:
    return [mailed for mailed in scene.mails if mailed.to == person.email and mailed.tokens and mailed.links]


def _follow(scene: Scene, person: Person, token: str, subject: str) -> Any:
    if "new password" in subject:
        kind = "admin" if person.is_admin else "enduser"
        new = f"a new pass phrase {secrets.token_hex(4)}"
        body = {"token": token, "password": new}
        response = person.call("post", f"/uflow/auth/{kind}/password/reset", body, token="")
        if response.status_code == 200:
            _replace_password(scene, person, new)
            person.pending = False
        return response
    if "verify" in subject:
        body = {"token": token, "current_password": person.password}
        response = person.call("post", "/uflow/user/email/verify", body, token="")
        if response.status_code == 400:
            response = person.call("post", "/uflow/user/email/verify", {"token": token}, token="")
        if response.status_code == 200:
            person.pending, scene.has_come_back = False, True
        return response
    return None


def register(scene: Scene, draw: Draw) -> str:
    """Register the user whose address the attacker knows, too."""
    home = scene.other_tenant if draw(3) else scene.tenant
    name = "newcomer"
    if name in scene.people:
        return ""
    email = scene.newcomer_email
    person = Person(name, home, UUID(int=0), email, frozenset(SELF_PERMISSIONS))
    body = {"tenant_id": str(home.id), "client_id": str(home.client_id), "email": email, "password": PASSWORD}
    response = person.call("post", "/uflow/user/clients/register", body, token="")
    if response.status_code == 201:
        person.id = UUID(response.json()["user_id"])
        person.pending = person.registered_by_rule = True
        scene.people[name] = person
        person.own_mails = [mailed for mailed in scene.peek_mails() if mailed.to == email and mailed.tokens]
    return f"a newcomer registers in {home.name.split()[0]}: {response.status_code}"


def remove_factor(scene: Scene, draw: Draw) -> str:
    """Remove the authenticator app, for example since the phone was stolen."""
    person = _any([each for each in scene.people.values() if each.secret and each.backup_codes and each.token], draw)
    if person is None:
        return ""
    response = person.call("post", f"{person.totp}/disable", {**person.fields, **person.proof()})
    if response.status_code == 200:
        codes, secret = person.backup_codes, person.secret
        scene.revoke(f"the removed factor of {person.name}", lambda: _factor_works(person, secret, codes), counted=True)
        person.secret, person.backup_codes = "", []
    return f"{person.name} removes the authenticator app: {response.status_code}"


def _factor_works(person: Person, secret: str, codes: list[str]) -> bool:
    response = person.enter_password()
    if response.status_code != 200 or not (waiting := response.json().get("mfa_token")):
        return False
    proofs = [{"code": pyotp.TOTP(secret).at(now())}, *({"backup_code": code} for code in codes[:1])]
    return any(
        person.call(
            "post", f"{person.totp}/verifyLogin", {**person.fields, "mfa_token": waiting, **proof}, token=""
        ).status_code
        == 200
        for proof in proofs
    )


def consent(scene: Scene, draw: Draw) -> str:
    """Allow the application of a third party to sign the user in."""
    person = _any([each for each in _users(scene) if each.tenant is scene.tenant], draw)
    if person is None:
        return ""
    client_id = scene.app["client_id"]
    opened = person.browser or person.open_browser()
    opened.opens(scene.authorize(client_id))
    if opened.page.status_code == 200 and opened.at == "consent":
        # The page shows the application; the user allows it.
        scene.consents[person.name, client_id] = frozenset({"openid"})
        scene.forget_revoked(_consent_of(person))
        opened.sends(allow="1")
    return f"{person.name} allows the application: {opened.page.status_code}"


def _consent_of(person: Person) -> str:
    return f"the withdrawn consent of {person.name}"


def withdraw_consent(scene: Scene, draw: Draw) -> str:
    """Disconnect an application on the account page."""
    person = _any([each for each in _users(scene) if (each.name, scene.app["client_id"]) in scene.consents], draw)
    if person is None:
        return ""
    client_id = scene.app["client_id"]
    opened = person.browser if person.browser and person.browser.session else person.open_browser()
    opened.opens("account/applications")
    if client_id not in opened.text:
        return ""
    opened.sends(**_disconnect_field(opened.text, client_id))
    if f'value="{client_id}"' in opened.text:
        return ""
    del scene.consents[person.name, client_id]
    scene.revoke(_consent_of(person), lambda: _consent_works(scene, person, client_id), counted=True)
    return f"{person.name} withdraws the consent"


def _disconnect_field(text: str, client_id: str) -> dict[str, str]:
    (name,) = set(re.findall(rf'name="(\w+)" value="{client_id}"', text))
    return {name: client_id}


def _consent_works(scene: Scene, person: Person, client_id: str) -> bool:
    """Return whether the application gets a code without asking the signed-in user."""
    if (person.name, client_id) in scene.consents or not person.active:
        return False
    if person.browser is None or not _is_signed_in(person):
        person.open_browser()
    assert person.browser is not None
    page = person.browser.opens(scene.authorize(client_id, prompt="none"))
    return page.status_code == 303 and "code=" in page.headers["Location"]


def _is_signed_in(person: Person) -> bool:
    assert person.browser is not None
    person.browser.opens("account")
    return person.browser.at == "account"


# --- admins ----------------------------------------------------------------------------------------------------------


def _admin(scene: Scene) -> Person:
    admin = scene.people["admin"]
    if not admin.token or not token_works(admin, admin.token):
        admin.sign_in()
    return admin


def erase_user(scene: Scene, draw: Draw) -> str:
    person = _any([each for each in _users(scene) if each.tenant is scene.tenant and each.name != "newcomer"], draw)
    if person is None or len([each for each in _users(scene) if each.tenant is scene.tenant]) < 2:
        return ""
    body = {"tenant_id": str(scene.tenant.id), "user_id": str(person.id)}
    response = _admin(scene).call("post", "/uflow/user/enduser/delete_all", body)
    if response.status_code == 200:
        _ended(scene, person, "erased")
    return f"the admin erases {person.name}: {response.status_code}"


def deactivate_user(scene: Scene, draw: Draw) -> str:
    person = _any([each for each in _users(scene) if each.tenant is scene.tenant], draw)
    if person is None:
        return ""
    body = {"tenant_id": str(scene.tenant.id), "user_id": str(person.id), "active": False}
    response = _admin(scene).call("post", "/uflow/admin/enduser/active", body)
    if response.status_code == 200:
        _ended(scene, person, "deactivated")
    return f"the admin deactivates {person.name}: {response.status_code}"


def _ended(scene: Scene, person: Person, how: str) -> None:
    _revoke_session(scene, person, f"who was {how}")
    person.active, person.browser = False, None
    for key in [key for key in scene.consents if key[0] == person.name]:
        del scene.consents[key]
    scene.forget_revoked(_consent_of(person))
    scene.forget_revoked(_old_password_of(person))
    scene.revoke(
        f"the sign-in of {person.name}, who was {how},",
        lambda: person.enter_password().status_code == 200,
        counted=True,
    )


def end_sessions(scene: Scene, draw: Draw) -> str:
    person = _any([each for each in _users(scene) if each.tenant is scene.tenant and each.token], draw)
    if person is None:
        return ""
    query = {"tenant_id": str(scene.tenant.id), "user_id": str(person.id)}
    response = _admin(scene).call("delete", "/authmgr/sessions", query=query)
    if response.status_code in (200, 204):
        _revoke_session(scene, person, "whose sessions the admin has ended")
        person.browser = None
    return f"the admin ends the sessions of {person.name}: {response.status_code}"


def rotate_app_secret(scene: Scene, draw: Draw) -> str:
    """Replace the secret of the third party's application at once, since it has leaked."""
    client_id, old = scene.app["client_id"], scene.app["client_secret"]
    path = f"/clientms/tenants/{scene.tenant.id}/clients/{client_id}/secret"
    response = _admin(scene).call("post", path, {"overlap_seconds": 0})
    if response.status_code == 200:
        scene.app["client_secret"] = response.json()["client_secret"]
        raw = f"client_id={client_id}&client_secret={old}&token=x".encode()
        path = f"/t/{scene.tenant.slug}/introspect"
        scene.revoke(
            "the rotated secret of the application",
            lambda: send("post", path, raw=raw, address=unique_ip()).status_code == 200,
            counted=True,
        )
    return f"the admin rotates the application's secret: {response.status_code}"


# --- the operator ----------------------------------------------------------------------------------------------------


def _key_ids(scene: Scene) -> set[str]:
    # A process reads the keys again after ten seconds.
    signing.forget(scene.tenant.id)
    response = send("get", f"/t/{scene.tenant.slug}/jwks", address=unique_ip())
    return {key["kid"] for key in response.json()["keys"]} if response.status_code == 200 else set()


def rotate_keys(scene: Scene, draw: Draw) -> str:
    run_command("rotate_signing_keys", tenant=scene.tenant.slug, at_once=True)
    return "rotate_signing_keys --at-once"


def withdraw_key(scene: Scene, draw: Draw) -> str:
    """Withdraw the key that signs, since it has leaked."""
    users = [person for person in _users(scene) if person.tenant is scene.tenant and person.token]
    if not users:
        return ""
    kid = jwt.get_unverified_header(users[0].token)["kid"]
    run_command("rotate_signing_keys", tenant=scene.tenant.slug, at_once=True)
    run_command("rotate_signing_keys", tenant=scene.tenant.slug, withdraw=kid)
    signing.forget(scene.tenant.id)
    for person in users:
        if jwt.get_unverified_header(person.token)["kid"] == kid:
            # The session goes on: its refresh token was signed by no key.
            person.refresh_token = ""
            _revoke_session(scene, person, "signed by a withdrawn key")
    scene.revoke("the withdrawn signing key", lambda: kid in _key_ids(scene))
    return "rotate_signing_keys --withdraw"


# What a person has in a backup, so that it is known again after a restore.
_KEPT: Final = ("password", "secret", "backup_codes", "email", "pending")


def back_up(scene: Scene, draw: Draw) -> str:
    if scene.backup is not None:
        return ""
    file = scene.folder / f"{scene.tenant.slug}.backup"
    run_command("backup_tenant", scene.tenant.slug, str(file))
    scene.backup = file
    scene.people_at_backup = {
        name: {field: deepcopy(getattr(person, field)) for field in _KEPT}
        for name, person in scene.people.items()
        if person.tenant is scene.tenant and not person.is_admin
    }
    return "backup_tenant"


def restore(scene: Scene, draw: Draw) -> str:
    """Restore the tenant: data of the time of the backup comes back, authority does not."""
    if scene.backup is None:
        return ""
    run_command("restore_tenant", scene.tenant.slug, str(scene.backup), yes=True)
    scene.backup = None
    signing.forget(scene.tenant.id)
    scene.has_come_back = True
    _come_back(scene)
    return "restore_tenant"


def delete_and_restore(scene: Scene, draw: Draw) -> str:
    """Delete the tenant and restore it from its final backup."""
    with override_settings(DELETED_TENANT_BACKUP_DAYS=30, BACKUP_FOLDER=scene.folder):
        said = run_command("delete_tenant", scene.tenant.slug, yes=True)
        run_command("restore_deleted_tenant", said.split()[-1])
        run_command("resume_tenant", scene.tenant.slug)
    signing.forget(scene.tenant.id)
    scene.has_come_back = True
    for person in scene.people.values():
        if person.tenant is scene.tenant:
            _revoke_session(scene, person, "whose tenant was deleted")
            person.browser = None
    return "delete_tenant, restore_deleted_tenant, resume_tenant"


def _come_back(scene: Scene) -> None:
    for person in scene.people.values():
        if person.tenant is not scene.tenant or person.is_admin:
            continue
        before = scene.people_at_backup.get(person.name)
        if before is None:
            person.active = False
            continue
        if person.password != before["password"]:
            # The password of the time of the backup is data.
            scene.forget_revoked(_old_password_of(person))
        for name, value in before.items():
            if name not in ("secret", "backup_codes"):
                setattr(person, name, deepcopy(value))
        # Codes that were used since, and a factor that was removed, may not work again; others do.
        person.backup_codes = [code for code in person.backup_codes if code in before["backup_codes"]]
        _revoke_session(scene, person, "of before the restore")
        person.browser = None


def suspend_and_resume(scene: Scene, draw: Draw) -> str:
    run_command("suspend_tenant", scene.tenant.slug)
    run_command("resume_tenant", scene.tenant.slug)
    scene.has_come_back = True
    return "suspend_tenant, resume_tenant"


USERS: Final[tuple[Step, ...]] = (
    sign_in,
    register,
    follow_mail,
    follow_mail,
    forget_password,
    forget_password,
    consent,
)
# A user or an admin ends what was valid until now.
REVOCATIONS: Final[tuple[Step, ...]] = (
    withdraw_consent,
    withdraw_key,
    erase_user,
    deactivate_user,
    end_sessions,
    rotate_app_secret,
    remove_factor,
    change_password,
    sign_out,
)
MAINTENANCE: Final[tuple[Step, ...]] = (restore, delete_and_restore, back_up, rotate_keys, suspend_and_resume)

"""Undoing a change of e-mail address: the old address gets a link that restores it for seven days.

Password reset goes by mail, so a caller who changes the address owns the account. The link lets the owner of the old address
take the account back, also after the new address was verified.
"""

from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError
from django.db.models import QuerySet
from django.utils.timezone import now

from identity_platform.crypto import hash_token
from tenants.entering import lookup
from tenants.entering.context import in_tenant
from tenants.errors import UnknownTenant
from tenants.states import Purpose
from userflow.accounts.event_payloads import person
from userflow.accounts.models import Account, EndUser
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.credentials import attempts, unused_registrations
from userflow.errors import AdminNameTaken, EmailTaken, EmailUndoInvalid
from userflow.events.outbox import publish
from userflow.mail.rendering import LANGUAGE_OF_MAIL, link_facts
from userflow.mailed_tokens import NotAToken, place_of, placed_token
from userflow.sessions.ending import end_everything

LIFETIME: Final = timedelta(days=7)


def offer_undo(realm: Realm, user: Account, tenant: lookup.TenantContext | None, *, pending: bool) -> None:
    """Tell the current address of the user that it is being replaced, with a link that undoes the change.

    Call it in the realm's transaction, with the user's row locked, before the address changes. `pending`: the new address
    applies once it is verified. An address that was never verified gets no link: it need not be the user's own, and its
    owner must neither receive the account nor be kept from registering. The link leads to a page on the platform's own host:
    an attacker who controls the tenant or its domain must not receive it.
    """
    token, home = "", realm.home(tenant)
    if user.email_verified_at is not None:
        token = placed_token(home.tenant_id if home else None)
        _undos(realm).create(
            user=user,
            email=user.email,
            email_key=user.email_key,
            token_digest=hash_token(token),
            expires_at=now() + LIFETIME,
        )
    facts = {
        "issuer": home.effective["issuer_name"] if home else "the identity platform",
        "pending": pending,
        **(link_facts(_page(home), token) if token else {"link": "", "token": ""}),
        "days": LIFETIME.days,
    }
    realm.notify(user, "email_changed", facts)


def _page(home: lookup.TenantContext | None) -> str:
    if home is not None:
        return f"{settings.BASE_URL}/t/{home.slug}/email-undo?ui_locales={LANGUAGE_OF_MAIL}"
    return str(settings.EMAIL_UNDO_URL)


def undo_email_change(*, token: str) -> Account:
    """Restore the address that the link was sent to; return the user.

    Every session, ticket and enrollment window of the user ends, an address that waits to be verified is given up, and so
    are the links of this and of every later change: those went to addresses that the change brought in. The link is used
    up. Raises EmailUndoInvalid (unknown, used, expired), EmailTaken or AdminNameTaken (another user has verified the
    address since), TenantSuspended, TenantBusy, TooManyFromAddress.
    """
    try:
        tenant_id = place_of(token)
        if tenant_id is None:
            return _undo(ADMINS, token)
        with in_tenant(tenant_id, Purpose.WRITE):
            return _undo(END_USERS, token)
    except (NotAToken, UnknownTenant, EmailUndoInvalid) as problem:
        attempts.count_wrong_secret()
        raise EmailUndoInvalid from problem


def _undo(realm: Realm, token: str) -> Account:
    valid = _undos(realm).filter(token_digest=hash_token(token), expires_at__gt=now())
    user_id = valid.values_list("user_id", flat=True).first()
    try:
        with realm.atomic():
            # Lock the user before the links, as in a change: another order could deadlock.
            users = realm.users._default_manager.select_for_update()
            user = users.filter(pk=user_id).first() if user_id is not None else None
            link = valid.first() if user is not None else None
            if user is None or link is None:
                raise EmailUndoInvalid
            _undos(realm).filter(user_id=user.pk, pk__gte=link.pk).delete()
            realm.model_of("email_proof")._default_manager.filter(user_id=user.pk).delete()
            if realm is END_USERS and user.email_key != link.email_key:
                unused_registrations.release_addresses([link.email_key], to="undo")
            user.email, user.email_key, user.email_verified_at = link.email, link.email_key, now()
            user.save(update_fields=["email", "email_key", "email_verified_at", "updated_at"])
            ended = end_everything(realm, user_id=user.pk, reason="email_change_undone")
            realm.record_about(user, "email.change_undone", {"sessions": ended})
            if isinstance(user, EndUser):
                publish("end_user.updated", person(user, changed=["email"]))
    except IntegrityError as clash:
        raise (EmailTaken if realm is END_USERS else AdminNameTaken) from clash
    return user


def _undos(realm: Realm) -> QuerySet[Any]:
    undos: QuerySet[Any] = realm.model_of("email_undos")._default_manager.all()
    return undos

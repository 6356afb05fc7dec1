"""Find by a name, an address or an id what the caller may see, in all tenants, without entering one.

Every look-up reads a few entries of an index, so its cost grows neither with the tenants nor with their users.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet, Value
from django.db.models.functions import Collate, Lower

from identity_platform.api.email_addresses import key_of_spelling, search_key
from registry.models import Service
from tenants.entering.lookup import GONE
from tenants.models import Tenant
from userflow.accounts.models import AdminUser, Client
from userflow.accounts.principals import OPERATOR, Principal
from userflow.endusers.finding import MOST_FOUND, find_end_users
from userflow.ids import FORM

# Of each kind, but end users: `MOST_FOUND`.
MOST_SHOWN: Final = 5

Rows = TypeVar("Rows", bound=Model)


class Kind(StrEnum):
    """What is searched for, in the order of the results."""

    TENANT = "tenant"
    END_USER = "end_user"
    ADMIN_USER = "admin_user"
    CLIENT = "client"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Match:
    """One result. `tenant` is None for operators."""

    kind: Kind
    key: UUID
    name: str
    tenant: Tenant | None
    # Besides the name: a slug or an address.
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The results of one search; `more` tells that there are others."""

    matches: list[Match]
    more: bool


def searchable(by: Principal) -> list[Kind]:
    """Return what the caller may search for.

    What belongs to a tenant is shown to an operator who may open tenants, and to the tenant's admins.
    """
    needed = {
        Kind.TENANT: "tenants:read",
        Kind.END_USER: "tenants:read endusers:read",
        Kind.ADMIN_USER: "admins:read",
        Kind.CLIENT: "tenants:read clients:read",
        Kind.SERVICE: "tenants:read services:read",
    }
    # A tenant's admin sees the own tenant without a permission.
    given = by.permissions if by.kind == OPERATOR else by.permissions | {"tenants:read"}
    return [kind for kind, permissions in needed.items() if given.issuperset(permissions.split())]


def find_anything(*, by: Principal, words: str) -> SearchResults:
    """Return what begins with the words, or has this id; end users only by their whole address or id.

    A search for end users is audited.
    """
    matches: list[Match] = []
    more = False
    for kind in searchable(by):
        most = MOST_FOUND if kind is Kind.END_USER else MOST_SHOWN
        matches_of_kind = list(_SEARCHES[kind](by, words))
        more |= len(matches_of_kind) > most
        matches += matches_of_kind[:most]
    return SearchResults(matches, more)


def _tenants(by: Principal, words: str) -> Iterator[Match]:
    rows = Tenant.objects.exclude(database__status__in=GONE)
    if by.tenant_id is not None:
        rows = rows.filter(pk=by.tenant_id)
    for tenant in _matching(rows, words, "slug", "name"):
        yield Match(Kind.TENANT, tenant.pk, tenant.name, tenant, tenant.slug)


def _end_users(by: Principal, words: str) -> Iterator[Match]:
    key, user_id = key_of_spelling(words), _id(words)
    if key or user_id:
        for end_user in find_end_users(by=by, email_key=key, user_id=user_id):
            yield Match(Kind.END_USER, end_user.user_id, key or words, end_user.tenant)


def _admin_users(by: Principal, words: str) -> Iterator[Match]:
    rows = _of_caller(AdminUser.objects.select_related("tenant"), by)
    for user in _matching(rows, words, "username", "email_key"):
        yield Match(Kind.ADMIN_USER, user.pk, user.username, user.tenant, user.email)


def _clients(by: Principal, words: str) -> Iterator[Match]:
    for client in _matching(_of_caller(Client.objects.select_related("tenant"), by), words, "name"):
        yield Match(Kind.CLIENT, client.pk, client.name, client.tenant)


def _services(by: Principal, words: str) -> Iterator[Match]:
    for service in _matching(_of_caller(Service.objects.select_related("tenant"), by), words, "name"):
        yield Match(Kind.SERVICE, service.pk, service.name, service.tenant)


_SEARCHES: Final[dict[Kind, Callable[[Principal, str], Iterator[Match]]]] = {
    Kind.TENANT: _tenants,
    Kind.END_USER: _end_users,
    Kind.ADMIN_USER: _admin_users,
    Kind.CLIENT: _clients,
    Kind.SERVICE: _services,
}


def _id(words: str) -> UUID | None:
    return UUID(words) if FORM.fullmatch(words) else None


def _of_caller(rows: QuerySet[Rows], by: Principal) -> QuerySet[Rows]:
    return rows if by.tenant_id is None else rows.filter(tenant_id=by.tenant_id)


def _matching(rows: QuerySet[Rows], words: str, *fields: str) -> list[Rows]:
    """Return the row with this id, or the first rows of which a field begins with the words, in any case.

    One statement for each field, whose index has the rows in this order: it ends after the few that are shown.
    """
    if key := _id(words):
        return list(rows.filter(pk=key))
    rows_by_id: dict[object, Rows] = {}
    for field in fields:
        ordered = rows.annotate(beginning=Collate(Lower(field), "C")).order_by("beginning")
        text = search_key(words) if field == "email_key" else words
        begin_so = ordered.filter(beginning__startswith=Lower(Value(text)))
        rows_by_id |= {row.pk: row for row in begin_so[: MOST_SHOWN + 1]}
    return list(rows_by_id.values())

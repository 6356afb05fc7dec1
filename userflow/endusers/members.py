"""Naming many end users at once: all of them exist, or none is touched."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from identity_platform.api.pagination import Page, offset
from userflow.endusers.models import EndUser
from userflow.errors import UnknownUsers

# More in one call would hold locks and build statements of a size that nobody expects of one request.
MOST_AT_ONCE = 1000


def must_exist(user_ids: Iterable[UUID]) -> None:
    """Refuse with UnknownUsers (404), which names each id that no end user of the tenant that is entered has.

    Those that exist are locked against erasure until the transaction ends, so what is then bound to them holds.
    """
    wanted = set(user_ids)
    found = EndUser.objects.filter(pk__in=wanted).order_by("pk").select_for_update(no_key=True)
    missing = wanted - set(found.values_list("pk", flat=True))
    if missing:
        raise UnknownUsers(details={"user_ids": [f"No user has the id {user_id}." for user_id in sorted(missing)]})


def page_of_members(members: Any, *, page: int, limit: int) -> Page:
    """One page of `members` (rows with a `user` and a `created_at`), the newest member first, as answers show them."""
    start = offset(page, limit)
    rows = members.order_by("-created_at", "-pk")[start : start + limit].values(
        "user_id", "user__email", "user__name", "user__active", "created_at"
    )
    shown = [
        {
            "id": row["user_id"],
            "email": row["user__email"],
            "name": row["user__name"],
            "active": row["user__active"],
            "since": row["created_at"],
        }
        for row in rows
    ]
    return Page(shown, page, limit, members.count())

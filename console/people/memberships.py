"""What groups and roles have in common: people are in them, are found by a search, come in and go out."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django import forms as django_forms
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.frame.confirm import confirmed
from console.people import forms
from console.people.lists import found as found_in
from console.people.lists import matching
from identity_platform.audit.writer import record_for_tenant
from tenants.models import Tenant
from userflow.accounts.models import EndUser
from userflow.sessions.assurance import Action

ON_A_PAGE: Final = 50
FOUND: Final = 20


class Asked(django_forms.Form):
    """Which members to show."""

    q = django_forms.CharField(max_length=254, required=False, strip=True)
    before = django_forms.IntegerField(required=False, min_value=1)


@dataclass
class Members:
    """One page of members, the last that came in first."""

    rows: list[Any]
    q: str
    # Where the next page begins; None at the end.
    next: int | None


def page_of(request: HttpRequest, bonds: Any) -> Members:
    """The members on the page that is asked for; `bonds` are rows with a `user`. Costs the same however many there are."""
    asked = Asked(request.GET)
    asked.is_valid()
    words, before = asked.cleaned_data.get("q", ""), asked.cleaned_data.get("before")
    if words:
        # Who is in is asked first: a search of all people that finds many might leave the members out.
        within = EndUser.objects.filter(pk__in=bonds.values("user_id"))
        bonds = bonds.filter(user_id__in=found_in(within, words))
    if before:
        bonds = bonds.filter(pk__lt=before)
    rows = list(bonds.select_related("user").order_by("-pk")[: ON_A_PAGE + 1])
    return Members(rows[:ON_A_PAGE], words, rows[ON_A_PAGE - 1].pk if len(rows) > ON_A_PAGE else None)


def add_members(
    request: HttpRequest,
    tenant: Tenant,
    *,
    title: str,
    text: str,
    back: str,
    bonds: Any,
    add: Callable[[Collection[UUID]], int],
) -> HttpResponse:
    """The page that finds people by a search and adds those that are chosen; `bonds` are the present memberships.

    The search is a look at the tenant's people, and audited as one.
    """
    if request.method != "POST":
        record_for_tenant("end_user.listed", details={"console": True, "filters": ["q"] if "q" in request.GET else []})
    asked = Asked(request.GET)
    asked.is_valid()
    words = asked.cleaned_data.get("q", "")
    found = []
    if words:
        candidates = matching(EndUser.objects.all(), words).exclude(pk__in=bonds.values("user_id"))
        found = list(candidates.order_by("email_key").values_list("pk", "email", "name")[:FOUND])

    def act(fields: dict[str, Any]) -> str:
        number = add([UUID(key) for key in fields["chosen"]])
        return ngettext("%(number)s user was added.", "%(number)s users were added.", number) % {"number": number}

    return confirmed(
        request,
        title=title,
        text=text,
        back=back,
        action=Action.GRANT_ROLES,
        act=act,
        form_class=forms.PeopleForm,
        form_options={"choices": [(str(key), f"{email} · {name}" if name else email) for key, email, name in found]},
        submit=_("Add"),
        dangerous=False,
        tenant=tenant,
        template="console/people/add_members.html",
        context={"q": words, "found": found, "most": FOUND},
    )

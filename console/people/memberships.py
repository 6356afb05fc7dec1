"""Members of groups and holders of roles: one page of them, and the pages that add and remove them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final
from uuid import UUID

from django import forms as django_forms
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.frame.confirm import TenantConfirmView
from console.frame.forms import Fields
from console.frame.records import Text
from console.people import forms
from console.people.end_user import EndUserConfirmView
from console.people.lists import found as found_in
from console.people.lists import matching
from identity_platform.audit.writer import record_for_tenant
from tenants.context import tenant_atomic
from userflow.accounts.models import EndUser, Group, GroupMembership, Role, RoleBinding
from userflow.sessions.assurance import Action

ON_A_PAGE: Final = 50
FOUND: Final = 20

Memberships = QuerySet[GroupMembership] | QuerySet[RoleBinding]


class MemberSearch(django_forms.Form):
    """Which members to show."""

    q = django_forms.CharField(max_length=254, required=False, strip=True)
    before = django_forms.IntegerField(required=False, min_value=1)


@dataclass
class MembersPage:
    """One page of members, newest first."""

    rows: Sequence[Model]
    q: str
    # Where the next page begins; None on the last page.
    next: int | None


def members_page(request: HttpRequest, memberships: Memberships) -> MembersPage:
    """Return the requested page. Its cost does not depend on the number of members."""
    search = MemberSearch(request.GET)
    search.is_valid()
    words, before = search.cleaned_data.get("q", ""), search.cleaned_data.get("before")
    if words:
        # Search among the members only: a search among all users that finds many could leave the members out.
        within = EndUser.objects.filter(pk__in=memberships.values_list("user_id", flat=True))
        memberships = memberships.filter(user_id__in=found_in(within, words))
    if before:
        memberships = memberships.filter(pk__lt=before)
    rows = list(memberships.select_related("user").order_by("-pk")[: ON_A_PAGE + 1])
    return MembersPage(rows[:ON_A_PAGE], words, rows[ON_A_PAGE - 1].pk if len(rows) > ON_A_PAGE else None)


class MembershipView(TenantConfirmView):
    """A page about the members of a group or the holders of a role.

    `console.people.groups` and `console.people.roles` say how these are found, added and removed.
    """

    # The page of a group or role, and the name of its id in the path.
    target_page: ClassVar[str]
    key: ClassVar[str]
    dangerous = False

    target: Group | Role

    def find(self, key: UUID) -> Group | Role:
        """Return the group or role. Raises a NotFound error."""
        raise NotImplementedError

    def memberships(self) -> Memberships:
        """Return the memberships of the target."""
        raise NotImplementedError

    def add(self, key: UUID, user_ids: Collection[UUID]) -> int:
        """Add the users to the group or role; return how many were added."""
        raise NotImplementedError

    def remove(self, key: UUID, user_ids: Collection[UUID]) -> int:
        """Remove the users from the group or role; return how many were removed."""
        raise NotImplementedError

    def load(self) -> None:
        super().load()
        self.target = self.find(self.kwargs[self.key])

    def names(self) -> Fields:
        return {**super().names(), "name": self.target.name}

    def get_back_url(self) -> str:
        return reverse(self.target_page, args=[self.target.pk])


class AddMembersView(MembershipView):
    """Find end users by a search and add those that are chosen. The search reads end users and is audited as such."""

    action = Action.GRANT_ROLES
    form_class = forms.ChosenUsersForm
    submit = _("Add")
    template_name = "console/people/add_members.html"

    def load(self) -> None:
        super().load()
        if self.request.method != "POST":
            filters = ["q"] if "q" in self.request.GET else []
            record_for_tenant("end_user.listed", details={"console": True, "filters": filters})
        search = MemberSearch(self.request.GET)
        search.is_valid()
        self.words = search.cleaned_data.get("q", "")
        self.found: list[tuple[UUID, str, str]] = []
        if self.words:
            members = self.memberships().values_list("user_id", flat=True)
            others = matching(EndUser.objects.all(), self.words).exclude(pk__in=members)
            self.found = list(others.order_by("email_key").values_list("pk", "email", "name")[:FOUND])

    def get_form_kwargs(self) -> Fields:
        choices = [(str(key), f"{email} · {name}" if name else email) for key, email, name in self.found]
        return {**super().get_form_kwargs(), "choices": choices}

    def get_context_data(self, **kwargs: object) -> Fields:
        return {**super().get_context_data(**kwargs), "q": self.words, "found": self.found, "most": FOUND}

    def act(self, fields: Fields) -> Text:
        number = self.add(self.target.pk, [UUID(key) for key in fields["chosen"]])
        return ngettext("%(number)s user is added.", "%(number)s users are added.", number) % {"number": number}


class RemoveMemberView(MembershipView, EndUserConfirmView):
    """Remove one end user from a group or role."""

    done: ClassVar[Text]

    def act(self, fields: Fields) -> Text:
        self.remove(self.target.pk, [self.end_user.pk])
        return str(self.done) % self.names()


class EndUserMembershipsView(MembershipView, EndUserConfirmView):
    """Choose all groups or roles of one end user. Only what is changed in the form changes."""

    action = Action.GRANT_ROLES
    form_class = forms.ChosenForm
    submit = _("Save")
    done: ClassVar[Text]

    def choices(self) -> list[tuple[str, str]]:
        """Return the ids and names to choose from."""
        raise NotImplementedError

    def current(self) -> Collection[UUID]:
        """Return the ids of those that the user has."""
        raise NotImplementedError

    def load(self) -> None:
        # The page is about the user, not about one group or role.
        EndUserConfirmView.load(self)

    def names(self) -> Fields:
        return EndUserConfirmView.names(self)

    def get_back_url(self) -> str:
        return EndUserConfirmView.get_back_url(self)

    def get_form_kwargs(self) -> Fields:
        had = [str(key) for key in self.current()]
        return {**super().get_form_kwargs(), "label": self.title, "choices": self.choices(), "had": had}

    def act(self, fields: Fields) -> Text:
        # All changes or none.
        with tenant_atomic():
            for key in fields["added"]:
                self.add(UUID(key), [self.end_user.pk])
            for key in fields["removed"]:
                self.remove(UUID(key), [self.end_user.pk])
        return self.done if fields["added"] or fields["removed"] else _("Nothing was changed.")

"""Lists of the chosen tenant's own database: end users, groups, roles, sessions."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model, Q, QuerySet, Sum
from django.db.models.functions import Lower
from django.forms import CheckboxInput
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context, staff_or_none
from console.frame.labels import factors as factors_in_words
from console.frame.labels import methods
from console.frame.lists import ActiveFilter, ChoiceFilter, TenantModelAdmin, column, time_column
from console.frame.records import NOTHING, Text, with_encoded_form
from console.frame.scope import tenant_at
from console.people.bulk import PAGES, SELECTED, SelectedUsersView
from identity_platform.api.email_addresses import search_key, shown_address
from mfa import factors
from openid.account.devices import device_in_words
from userflow.accounts.models import Client, EndUser, EndUserCount, Group, Role
from userflow.accounts.session_models import EndUserSession
from userflow.endusers.queries import table_exceeds

if TYPE_CHECKING:
    from django.contrib.admin.filters import _ListFilterChoices

# Up to this table size a search matches anywhere in the text; in a larger table it matches prefixes by the index.
# 64 MiB hold about 200,000 users, which PostgreSQL scans from memory in some ten milliseconds.
READ_WHOLE: Final = 64 * 1024 * 1024
# A search that matches more users shows the newest of them.
MOST_FOUND: Final = 500
# The number of providers that the filter offers.
PROVIDERS_SHOWN: Final = 50


def link(page: str, key: object, text: str) -> SafeString:
    return format_html('<a href="{}" class="people-link">{}</a>', reverse(page, args=[key]), text)


def tag(text: str | Promise, kind: str) -> SafeString:
    return format_html('<span class="people-tag {}">{}</span>', kind, text)


def matching(users: QuerySet[EndUser], words: str) -> QuerySet[EndUser]:
    """Return the users whose address or name contains the words; in a large table those whose address begins with them.

    In either case also the user with this external id.
    """
    key, same_id = search_key(words), Q(external_id=words)
    if "@" in key or is_large():
        return users.filter(Q(email_key__startswith=key) | same_id)
    return users.filter(Q(email_key__contains=key) | Q(name__icontains=words) | same_id)


def newest_matching(users: QuerySet[EndUser], words: str) -> list[UUID]:
    """Return the ids of the newest of `matching`, read once so that counting and showing do not search twice."""
    return list(matching(users, words).order_by("-created_at", "-id").values_list("pk", flat=True)[:MOST_FOUND])


def is_large() -> bool:
    """Return whether the table of users is too large to be scanned by a search."""
    return table_exceeds(READ_WHOLE)


class EndUserActiveFilter(ActiveFilter):
    parameter_name = "active"
    options = (("yes", _("active")), ("no", _("deactivated")))


class ProviderFilter(ChoiceFilter):
    title = _("provider")
    parameter_name = column = "provider"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, Text]]:
        counts = EndUserCount.objects.values("provider").annotate(people=Sum("users")).filter(people__gt=0)
        names = counts.order_by("provider").values_list("provider", flat=True)
        return [(name, name) for name in names[:PROVIDERS_SHOWN]]


class ClientFilter(ChoiceFilter):
    """The client through which the user registered."""

    title = _("client")
    parameter_name = "client"
    column = "client_id"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, Text]]:
        clients = Client.objects.filter(tenant_id=tenant_at(request).pk).order_by("name")
        return [(str(key), name) for key, name in clients.values_list("pk", "name")[:100]]


class FactorFilter(ChoiceFilter):
    title = _("second factor")
    parameter_name = "factor"
    options = (
        ("none", _("none")),
        (factors.WEBAUTHN, _("passkey")),
        (factors.TOTP, _("authenticator app")),
        (factors.SMS, _("SMS")),
    )

    def matching(self, rows: QuerySet[Model], value: str) -> QuerySet[Model]:
        return rows.filter(mfa_methods=[]) if value == "none" else rows.filter(mfa_methods__contains=[value])


class SessionStateFilter(admin.SimpleListFilter):
    title = _("state")
    parameter_name = "state"
    horizontal = True

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, Text]]:
        return [("over", _("ended"))]

    def choices(self, changelist: ChangeList) -> "Iterator[_ListFilterChoices]":
        everything, *others = super().choices(changelist)
        yield {**everything, "display": _("active")}
        yield from others

    def queryset(self, request: HttpRequest, queryset: QuerySet[EndUserSession]) -> QuerySet[EndUserSession]:
        active = Q(ended_at=None, expires_at__gt=now())
        return queryset.exclude(active) if self.value() == "over" else queryset.filter(active)


@admin.register(EndUser)
class EndUserAdmin(TenantModelAdmin):
    """The list of end users. Its actions lead to pages that confirm, about the users that are selected on one page."""

    view_permission = "endusers:read"
    audited_as = "end_user"
    list_title = _("End users")
    links = (
        (_("Invite end user"), "admin:invite_person", "invitations:write"),
        (_("Add end user"), "admin:register_person", "endusers:write"),
        (_("Import"), "admin:import_people", "endusers:write"),
        (_("Export"), "admin:export_people", "endusers:read"),
    )
    list_display = ("person", "display_name", "state", "provider", "second_factors", "registered", "signed_in")
    ordering = ("-created_at", "-id")
    # The columns with an index.
    sortable_by = ("person", "registered")
    list_filter = (EndUserActiveFilter, ProviderFilter, ClientFilter, FactorFilter)
    list_disable_select_all = True
    search_fields = ("email",)
    search_help_text = _("E-mail address, name or external id")
    empty_title = _("No end users")
    empty_text = _("No user matches the search, or no user has registered yet. Register a user or send an invitation.")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[EndUser], search_term: str
    ) -> tuple[QuerySet[EndUser], bool]:
        words = search_term.strip()
        if not words:
            return queryset, False
        ids = newest_matching(queryset, words)
        if len(ids) == MOST_FOUND:
            messages.info(
                request, _("Only the newest %(number)s are shown. Refine the search.") % {"number": MOST_FOUND}
            )
        return queryset.filter(pk__in=ids), False

    def changelist_view(self, request: HttpRequest, extra_context: Context | None = None) -> HttpResponse:
        # The form of the list does not carry its tenant; the page that it leads to does, and finds users of that tenant only.
        if request.method == "POST" and self.has_view_permission(request):
            return self._to_selected(request)
        return super().changelist_view(request, extra_context)

    def _to_selected(self, request: HttpRequest) -> HttpResponse:
        page, ids = request.POST.get("action", ""), request.POST.getlist(ACTION_CHECKBOX_NAME)
        if page not in self.get_actions(request) or not ids:
            messages.warning(request, _("Select users and an action."))
            return HttpResponseRedirect(request.get_full_path())
        return HttpResponseRedirect(f"{reverse(f'admin:{page}')}?{urlencode({SELECTED: ','.join(ids)})}")

    def get_actions(self, request: HttpRequest) -> dict[str, tuple[type[SelectedUsersView], str, str]]:
        """Return the pages for selected users that the reader may open, by name."""
        staff = staff_or_none(request)
        allowed = {page: view for page, view in PAGES.items() if staff and all(map(staff.may, view.permissions))}
        return {page: (view, page, str(view.title)) for page, view in allowed.items()}

    def action_checkbox(self, obj: EndUser) -> SafeString:
        # Not the theme's: its classes are longer than the rest of the row.
        label = _("Select %(email)s") % {"email": shown_address(obj.email)}
        box = CheckboxInput({"class": "action-select", "aria-label": label}, check_test=lambda value: False)
        return box.render(ACTION_CHECKBOX_NAME, str(obj.pk))

    person = column(
        _("E-mail"), lambda user: link("admin:person", user.pk, with_encoded_form(user.email)), ordering="email_key"
    )
    display_name = column(_("Name"), lambda user: user.name or None)
    state = column(
        _("State"), lambda user: tag(_("active"), "is-good") if user.active else tag(_("deactivated"), "is-bad")
    )
    second_factors = column(_("Second factors"), lambda user: factors_in_words(user.mfa_methods))
    registered = time_column(_("Registered"), "created_at")
    signed_in = time_column(_("Last sign-in"), "last_login")


@admin.register(Group)
class GroupAdmin(TenantModelAdmin):
    view_permission = "groups:read"
    audited_as = "group"
    list_title = _("Groups")
    links = ((_("Add group"), "admin:new_group", "groups:write"),)
    list_display = ("group", "description", "role_names", "created")
    search_fields = ("name",)
    search_help_text = _("Name of a group")
    empty_title = _("No groups")
    empty_text = _("A group gives roles to its members. Create the first one, or search for another name.")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        return super().get_queryset(request).prefetch_related("roles").order_by(Lower("name"))

    group = column(_("Name"), lambda group: link("admin:group", group.pk, group.name))
    role_names = column(_("Roles"), lambda group: ", ".join(sorted(role.name for role in group.roles.all())) or None)
    created = time_column(_("Created"), "created_at")


def _first_permissions(role: Role) -> str:
    shown, further = role.permissions[:4], len(role.permissions) - 4
    return ", ".join(shown) + (f" (+{further})" if further > 0 else "") or NOTHING


@admin.register(Role)
class RoleAdmin(TenantModelAdmin):
    view_permission = "roles:read"
    audited_as = "role"
    list_title = _("Roles")
    links = ((_("Add role"), "admin:new_role", "roles:write"),)
    list_display = ("role", "description", "grants", "origin", "created")
    search_fields = ("name",)
    search_help_text = _("Name of a role")
    empty_title = _("No roles")
    empty_text = _("A role is a named set of permissions. Create one, or search for another name.")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        return super().get_queryset(request).order_by(Lower("name"))

    role = column(_("Name"), lambda role: link("admin:role", role.pk, role.name))
    grants = column(_("Permissions"), _first_permissions)
    origin = column(_("Kind"), lambda role: str(_("built-in") if role.built_in else _("custom")))
    created = time_column(_("Created"), "created_at")


@admin.register(EndUserSession)
class EndUserSessionAdmin(TenantModelAdmin):
    view_permission = "sessions:read"
    # The list names all users who are signed in, which the sessions of the API do not.
    also_needs = "endusers:read"
    audited_as = "session"
    list_title = _("Sessions")
    list_display = ("person", "address", "browser", "how", "began", "used", "expires", "ended")
    list_select_related = ("user",)
    ordering = ("-created_at", "-id")
    list_filter = (SessionStateFilter,)
    search_fields = ("user__email",)
    search_help_text = _("E-mail address or name")
    empty_title = _("No sessions")
    empty_text = _("No matching user is signed in.")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[EndUserSession], search_term: str
    ) -> tuple[QuerySet[EndUserSession], bool]:
        words = search_term.strip()
        if not words:
            return queryset, False
        return queryset.filter(user_id__in=newest_matching(EndUser.objects.all(), words)), False

    person = column(
        _("User"), lambda session: link("admin:person", session.user_id, with_encoded_form(session.user.email))
    )
    browser = column(_("Browser"), lambda session: device_in_words(session.user_agent))
    how = column(_("Signed in with"), lambda session: methods(session.amr))
    began = time_column(_("Created"), "auth_time")
    used = time_column(_("Last used"), "last_used_at")
    expires = time_column(_("Expires"), "expires_at")
    ended = column(_("Ended"), lambda session: session.end_reason or None)

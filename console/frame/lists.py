"""Base classes of lists: the permissions of the API, no writes except through actions, bounded counts."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import UUID

from django.contrib.admin import ModelAdmin as DjangoModelAdmin
from django.contrib.admin import ShowFacets, SimpleListFilter
from django.contrib.admin.views.main import SEARCH_VAR
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.views import ChangeList

from console.frame.access import Context, Page, needed, staff_at, staff_or_none
from console.frame.labels import counted
from console.frame.records import Text, moment
from console.frame.scope import tenant_at
from console.frame.tenant_pages import render_in_tenant
from identity_platform.api.email_addresses import search_key
from identity_platform.audit.writer import record_for_tenant
from tenants.entering.target import TENANT_ALIAS
from tenants.models import Tenant

COUNTED_AT_MOST: Final = 10_000

if TYPE_CHECKING:
    RowsPaginator = Paginator[Model]
else:
    # Generic for the type checker only.
    RowsPaginator = Paginator


class BoundedPaginator(RowsPaginator):
    """Stop counting at COUNTED_AT_MOST: the exact count of a large table would read all of it."""

    @cached_property
    def count(self) -> int:
        """Return the number of rows, or COUNTED_AT_MOST + 1 if there are more."""
        if isinstance(self.object_list, QuerySet):
            return self.object_list.order_by()[: COUNTED_AT_MOST + 1].count()
        return len(self.object_list)


class ConsoleChangeList(ChangeList):  # type: ignore[misc]  # unfold has no types
    """A list that counts only the rows that it found."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        # Otherwise the template offers "show all", which these lists do not have.
        self.full_result_count = self.result_count
        self.counted_all = self.result_count <= COUNTED_AT_MOST
        self.counted_kind = counted(str(self.opts.verbose_name), self.result_count)


class ChoiceFilter(SimpleListFilter):
    """Rows with the chosen value in a column. Values that are not offered filter nothing."""

    column: ClassVar[str]
    options: ClassVar[Sequence[tuple[str, Text]]] = ()

    def lookups(self, request: HttpRequest, model_admin: object) -> Sequence[tuple[str, Text]]:
        return self.options

    def matching(self, rows: QuerySet[Model], value: str) -> QuerySet[Model]:
        """Return the rows with an offered value."""
        return rows.filter(**{self.column: value})

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        value = self.value()
        return self.matching(queryset, value) if value in dict(self.lookup_choices) and value else queryset


class ActiveFilter(ChoiceFilter):
    title = _("state")
    parameter_name = "state"
    options = (("active", _("active")), ("deactivated", _("deactivated")))
    horizontal = True

    def matching(self, rows: QuerySet[Model], value: str) -> QuerySet[Model]:
        return rows.filter(active=value == self.options[0][0])


class ConsoleModelAdmin(ModelAdmin):  # type: ignore[misc]  # unfold has no types
    """A read-only list of a model.

    `add`, `show` and `delete` are pages in the place of Django's forms, as static methods: each checks its permissions
    itself. Those of one row take its id as `key`. All others are in `console.urls`.

    `view_permission` is the permission of the API that opens it. Lists are for operators only, or limited to the tenant
    of a tenant admin by `of_tenant`.
    """

    view_permission: ClassVar[str]
    # A second required permission.
    also_needs: ClassVar[str] = ""
    operators_only: ClassVar[bool] = False
    # The model's path to the tenant's id, such as `tenant_id`; tenant admins see rows of their own tenant only.
    of_tenant: ClassVar[str | None] = None
    key: ClassVar[str]
    add: ClassVar[Page | None] = None
    # The permissions that the link to it needs.
    add_needs: ClassVar[tuple[str, ...]] = ()
    show: ClassVar[Page | None] = None
    delete: ClassVar[Page | None] = None

    paginator = BoundedPaginator
    show_full_result_count = False
    # Facet counts would count the whole table once per filter.
    show_facets = ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 0
    list_filter_submit = True
    sortable_by: ClassVar[Sequence[str] | None] = ()
    actions = None
    compressed_fields = True
    # The heading, and what an empty list shows: why it is empty and what to do next.
    list_title: ClassVar[Text] = ""
    empty_title: ClassVar[Text] = ""
    empty_text: ClassVar[Text] = ""
    # Links above the list: label, page, and the permission that it needs.
    links: ClassVar[tuple[tuple[Text, str, str], ...]] = ()
    list_before_template = "console/links.html"

    def changelist_view(self, request: HttpRequest, extra_context: Context | None = None) -> HttpResponse:
        staff = staff_or_none(request)
        links = [(words, page) for words, page, permission in self.links if staff and staff.may(permission)]
        context = {"title": self.list_title, "links": links, **(extra_context or {})}
        response: HttpResponse = super().changelist_view(request, context)
        return response

    def get_urls(self) -> list[URLPattern]:
        # Django's own history is not kept: the audit log is. The path without a name is a legacy redirect.
        urls: list[URLPattern] = super().get_urls()
        return [url for url in urls if url.name and not url.name.endswith("_history")]

    def add_view(self, request: HttpRequest, *args: object) -> HttpResponse:
        if self.add is None:
            raise PermissionDenied
        return self.add(request)

    def change_view(self, request: HttpRequest, object_id: str, *args: object) -> HttpResponse:
        return self._of_one(self.show, request, object_id)

    def delete_view(self, request: HttpRequest, object_id: str, *args: object) -> HttpResponse:
        return self._of_one(self.delete, request, object_id)

    def _of_one(self, page: Page | None, request: HttpRequest, object_id: str) -> HttpResponse:
        if page is None:
            raise PermissionDenied
        key = uuid_or_none(object_id)
        if key is None:
            raise Http404
        return page(request, **{self.key: key})

    def get_changelist(self, request: HttpRequest, **options: object) -> type[ChangeList]:
        return ConsoleChangeList

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        # The sign-in pages call this too, before anyone is signed in.
        staff = staff_or_none(request)
        if staff is None or not staff.may(self.view_permission) or (self.also_needs and not staff.may(self.also_needs)):
            return False
        return staff.is_operator or not self.operators_only

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        # Django would allow lookups on any column, which discloses even password hashes character by character. Only the
        # filters are allowed.
        assert request is not None  # Django's list passes it
        return lookup in {each.parameter_name for each in self.get_list_filter(request)}

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        staff = staff_or_none(request)
        return staff is not None and self.add is not None and all(map(staff.may, self.add_needs))

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        rows: QuerySet[Model] = super().get_queryset(request)
        tenant_id = staff_at(request).user.tenant_id
        if tenant_id is not None and self.operators_only:
            return rows.none()
        if tenant_id is not None:
            assert self.of_tenant is not None, f"{type(self).__name__} must say of_tenant or operators_only"
            rows = rows.filter(**{self.of_tenant: tenant_id})
        return rows


class AddressSearch:
    """A list whose search finds a domain in Unicode and in its encoded form."""

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Model], search_term: str
    ) -> tuple[QuerySet[Model], bool]:
        search = super().get_search_results  # type: ignore[misc]  # that of the list beside it
        rows, has_duplicates = search(request, queryset, search_term)
        if search_term.isascii():
            return rows, has_duplicates
        # A name may contain these letters as they are, so both are searched for.
        return rows | search(request, queryset, search_key(search_term))[0], has_duplicates


class ChosenTenantModelAdmin(ConsoleModelAdmin):
    """A list of rows of the chosen tenant in the global database."""

    of_tenant = "tenant_id"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        return super().get_queryset(request).filter(tenant_id=tenant_at(request).pk)

    def changelist_view(self, request: HttpRequest, extra_context: Context | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied(needed(self.view_permission))
        tenant_at(request)
        return super().changelist_view(request, extra_context)


class TenantModelAdmin(ConsoleModelAdmin):
    """A list of rows in the chosen tenant's own database. Every view is audited there."""

    # The name of such a row in audit events, such as `end_user`.
    audited_as: ClassVar[str]
    # The filters are links and act at once.
    list_filter_submit = False
    list_display_links = None

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        # The database holds rows of this tenant only.
        return DjangoModelAdmin.get_queryset(self, request).using(TENANT_ALIAS)

    def changelist_view(self, request: HttpRequest, extra_context: Context | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied(needed(self.view_permission))
        offered = [SEARCH_VAR, *(str(each.parameter_name) for each in self.list_filter)]
        filters = [name for name in offered if request.GET.get(name)]

        def draw(tenant: Tenant) -> HttpResponse:
            # The names of the filters only: their values may be e-mail addresses.
            record_for_tenant(f"{self.audited_as}.listed", details={"console": True, "filters": filters})
            return super(TenantModelAdmin, self).changelist_view(request, extra_context)

        return render_in_tenant(request, draw)

    def get_urls(self) -> list[URLPattern]:
        # Rows have pages of their own; Django's would query outside the tenant.
        return [each for each in super().get_urls() if str(each.name).endswith("_changelist")]


def column(
    label: Text, value: Callable[[Any], object], *, badges: Mapping[str, str] | None = None, ordering: str | None = None
) -> Any:
    """Return a column of a list: its value for a row; with `badges` (the colours by key) a pair of a key and its text."""
    decorated = display(description=label, label=badges, ordering=ordering)(value)
    # Not a method: it does not take the list.
    return staticmethod(decorated)


def time_column(label: Text, field: str) -> Any:
    """Return a column with a time in UTC. A list sorts by it if its `sortable_by` names it."""
    return column(label, lambda row: moment(getattr(row, field)), ordering=field)


def uuid_or_none(text: str) -> UUID | None:
    """Return the id, or None for a malformed one."""
    try:
        return UUID(text)
    except ValueError:
        return None

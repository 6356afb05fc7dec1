"""The admin site: access, error pages, the pages beside the lists, and the context of every page."""

from functools import partial, wraps

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, URLResolver
from django.utils.translation import gettext as _
from unfold.sites import UnfoldAdminSite

from console.frame.access import Context, Page, is_signed_in, to_step_up
from console.frame.breadcrumbs import crumbs_of
from console.frame.modes import in_every_mode, with_modes
from console.frame.records import NOTHING, render_page
from console.frame.scope import NoTenantChosen, chosen_tenant, page_tenant, to_the_chooser
from console.frame.sent_forms import processed_each_time
from identity_platform.api.errors import ApiError
from identity_platform.api.handlers import note_rejection
from userflow.errors import InsufficientAuthentication


class ConsoleSite(UnfoldAdminSite):  # type: ignore[misc]  # unfold has no types
    """The operators' console at /admin/."""

    enable_nav_sidebar = True
    empty_value_display = NOTHING
    index_template = "console/dashboard.html"

    def has_permission(self, request: HttpRequest) -> bool:
        return is_signed_in(request)

    def login(self, request: HttpRequest, extra_context: Context | None = None) -> HttpResponse:
        """Replace Django's sign-in by the platform's."""
        from console.signin.views import sign_in

        return sign_in(request)

    @in_every_mode
    def logout(self, request: HttpRequest, extra_context: Context | None = None) -> HttpResponse:
        """End the platform's session too."""
        from console.signin.views import sign_out_here

        return sign_out_here(request)

    def password_change(self, request: HttpRequest, extra_context: Context | None = None) -> HttpResponse:
        """Change the password through the platform's action: it audits, and ends all other sessions."""
        from console.signin.own_account import new_password

        return new_password(request)

    @processed_each_time
    def search(self, request: HttpRequest, extra_context: Context | None = None) -> HttpResponse:
        """Replace unfold's search, which caches what it has found and looks at the names of lists only."""
        from console.find.views import find

        return find(request)

    def get_urls(self) -> list[URLPattern | URLResolver]:
        """Leave out Django's pages that look up any object of any model."""
        urls: list[URLPattern | URLResolver] = super().get_urls()
        return [url for url in urls if getattr(url, "name", None) not in ("view_on_site", "autocomplete")]

    def extra_urls(self) -> list[URLPattern]:
        from console import urls

        return urls.pages(self)

    def admin_view(self, view: Page, cacheable: bool = False) -> Page:
        """Return a page that requires the sign-in, with error pages in the console's frame."""
        return with_error_pages(super().admin_view(with_modes(view), cacheable))

    def each_context(self, request: HttpRequest) -> Context:
        """Return the context of every page, with the tenant that it acts on for the bar."""
        context: Context = super().each_context(request)
        if self.has_permission(request):
            # Read when the bar is drawn: by then the page has said what it acts on.
            context["page_tenant"] = partial(page_tenant, request)
            context["crumbs"] = partial(crumbs_of, request)
            context["chosen_tenant"] = partial(chosen_tenant, request)
        return context


def with_error_pages(page: Page) -> Page:
    """Wrap a page so that 403, 404 and errors of actions become pages of the console.

    Anonymous users are redirected to the sign-in before, so these pages disclose nothing to them.
    """

    @wraps(page)
    def guarded(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        try:
            return page(request, *args, **kwargs)
        except NoTenantChosen:
            return HttpResponseRedirect(to_the_chooser(request))
        except PermissionDenied as error:
            if isinstance(error.__cause__, ApiError):
                note_rejection(request, error.__cause__)
            text = str(error) or _(
                "Your roles do not allow this. Ask an admin who manages admin users for a role that does."
            )
            return _error_page(request, 403, _("Not allowed"), text)
        except Http404:
            text = _("This page does not exist, was removed, or belongs to another tenant.")
            return _error_page(request, 404, _("Not found"), text)
        except InsufficientAuthentication:
            return to_step_up(request)
        except ApiError as error:
            note_rejection(request, error)
            return _error_page(request, error.status, error.phrase, error.text)

    return guarded


def _error_page(request: HttpRequest, status: int, title: str, text: str) -> HttpResponse:
    # A row that is gone leads back to its list.
    lists = crumbs_of(request) if status == 404 else []
    context: Context = {"text": text, "lists": lists, "reference": getattr(request, "request_id", "")}
    return render_page(request, "console/error.html", title, context, status=status)

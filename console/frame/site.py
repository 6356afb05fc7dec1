"""The admin site: access, the pages beside the lists, and the context of every page."""

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver
from unfold.sites import UnfoldAdminSite

from console.frame import errors
from console.frame.access import Context, Page, is_signed_in
from console.frame.records import NOTHING
from console.frame.scope import chosen_tenant


class ConsoleSite(UnfoldAdminSite):  # type: ignore[misc]  # unfold has no types
    """The operators' console at /admin/."""

    enable_nav_sidebar = True
    empty_value_display = NOTHING
    index_template = "console/dashboard.html"

    def has_permission(self, request: HttpRequest) -> bool:
        """Return whether the sign-in is complete."""
        return is_signed_in(request)

    def login(self, request: HttpRequest, extra_context: Context | None = None) -> HttpResponse:
        """Replace Django's sign-in by the platform's."""
        from console.signin.views import sign_in

        return sign_in(request)

    def logout(self, request: HttpRequest, extra_context: Context | None = None) -> HttpResponse:
        """End the platform's session too."""
        from console.signin.views import sign_out_here

        return sign_out_here(request)

    def password_change(self, request: HttpRequest, extra_context: Context | None = None) -> HttpResponse:
        """Change the password through the platform's action: it audits, and ends all other sessions."""
        from console.signin.own_account import new_password

        return new_password(request)

    def get_urls(self) -> list[URLPattern | URLResolver]:
        """Leave out Django's pages that look up any object of any model."""
        urls: list[URLPattern | URLResolver] = super().get_urls()
        return [url for url in urls if getattr(url, "name", None) not in ("view_on_site", "autocomplete")]

    def extra_urls(self) -> list[URLPattern]:
        """Return the pages beside the lists."""
        from console import urls

        return urls.pages(self)

    def admin_view(self, view: Page, cacheable: bool = False) -> Page:
        """Return a page that requires the sign-in, with error pages in the console's frame."""
        return errors.with_error_pages(super().admin_view(view, cacheable))

    def each_context(self, request: HttpRequest) -> Context:
        """Return the context of every page, with the chosen tenant for the header."""
        context: Context = super().each_context(request)
        if self.has_permission(request):
            context["console_tenant"] = chosen_tenant(request)
        return context

"""The admin site: access, the pages beside the lists, and the context of every page."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from unfold.sites import UnfoldAdminSite

from console.frame import errors
from console.frame.access import is_signed_in
from console.frame.forms import Fields
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

    def login(self, request: HttpRequest, extra_context: Fields | None = None) -> HttpResponse:
        """Replace Django's sign-in by the platform's."""
        from console.signin.views import sign_in

        return sign_in(request)

    def logout(self, request: HttpRequest, extra_context: Fields | None = None) -> HttpResponse:
        """End the platform's session too."""
        from console.signin.views import sign_out_here

        return sign_out_here(request)

    def password_change(self, request: HttpRequest, extra_context: Fields | None = None) -> HttpResponse:
        """Change the password through the platform's action: it audits, and ends all other sessions."""
        from console.signin.own_account import new_password

        return new_password(request)

    def get_urls(self) -> list[object]:
        """Leave out Django's pages that look up any object of any model."""
        urls: list[object] = super().get_urls()
        return [url for url in urls if getattr(url, "name", None) not in ("view_on_site", "autocomplete")]

    def extra_urls(self) -> list[URLPattern]:
        """Return the pages beside the lists."""
        from console import urls

        return urls.pages(self)

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        """A page behind the sign-in; what it rejects is answered in the console's frame."""
        return errors.with_error_pages(self, super().admin_view(view, cacheable))

    def each_context(self, request: HttpRequest) -> Fields:
        """Return the context of every page, with the chosen tenant for the header."""
        context: Fields = super().each_context(request)
        if self.has_permission(request):
            context["console_tenant"] = chosen_tenant(request)
        return context

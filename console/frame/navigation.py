"""The sidebar: groups of links that the user may open."""

from django.http import HttpRequest
from django.urls import reverse_lazy
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context
from console.people.navigation import chosen_tenant_links
from console.platform.navigation import platform, registry
from console.tenants.navigation import tenants_and_jobs


def sidebar(request: HttpRequest) -> list[Context]:
    """Return the sidebar (unfold's SIDEBAR.navigation)."""
    return [
        {
            "title": _("Overview"),
            "items": [
                {"title": _("Dashboard"), "icon": "dashboard", "link": reverse_lazy("admin:index")},
                *tenants_and_jobs(request),
            ],
        },
        chosen_tenant_links(request),
        registry(),
        platform(),
    ]


def own_links(request: HttpRequest) -> list[Context]:
    """Return the links of the account menu (unfold's ACCOUNT.navigation)."""
    return [{"title": _("My sign-in"), "link": reverse_lazy("admin:my_sign_in")}]

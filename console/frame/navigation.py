"""The sidebar: groups of links, each shown to whoever may open it."""

from typing import Any

from django.http import HttpRequest
from django.urls import reverse_lazy
from django.utils.translation import gettext_lazy as _

from console.people.navigation import inside_the_tenant
from console.platform.navigation import platform, registry
from console.tenants.navigation import tenants_and_jobs


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """Unfold's navigation (SIDEBAR.navigation)."""
    return [
        {
            "title": _("Overview"),
            "items": [
                {"title": _("Dashboard"), "icon": "dashboard", "link": reverse_lazy("admin:index")},
                *tenants_and_jobs(request),
            ],
        },
        inside_the_tenant(request),
        registry(),
        platform(),
    ]


def own_links(request: HttpRequest) -> list[dict[str, Any]]:
    """Unfold's menu of the person who is signed in (ACCOUNT.navigation)."""
    return [{"title": _("My sign-in"), "link": reverse_lazy("admin:my_sign_in")}]

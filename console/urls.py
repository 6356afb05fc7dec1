"""Pages of the console that belong to no list, one line each; every room adds its own."""

from django.contrib.admin import AdminSite
from django.urls import URLPattern

from console.people import urls as people
from console.platform import urls as platform
from console.signin import urls as signin


def pages(site: AdminSite) -> list[URLPattern]:
    """The paths; each view is wrapped by `site.admin_view`, but for those of the sign-in."""
    return [
        *signin.pages(site),
        *people.pages(site),
        *platform.pages(site),
    ]

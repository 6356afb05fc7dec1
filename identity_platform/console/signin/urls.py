"""Pages of the way in and of one's own sign-in."""

from django.contrib.admin import AdminSite
from django.urls import URLPattern, path

from identity_platform.console.signin import views


def pages(site: AdminSite) -> list[URLPattern]:
    """The paths. Those before the sign-in is done are not wrapped by `site.admin_view`."""
    return [
        path("second-step/", views.second_step, name="second_step"),
        path("forgotten/", views.forgotten, name="forgotten"),
        path("passkey-options/", views.passkey_options, name="passkey_options"),
        path("reauthenticate/", site.admin_view(views.reauthenticate), name="reauthenticate"),
        path("my-sign-in/", site.admin_view(views.reauthenticate), name="my_sign_in"),
    ]

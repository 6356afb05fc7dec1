"""Paths of the sign-in and of the own sign-in settings."""

from django.contrib.admin import AdminSite
from django.urls import URLPattern, path

from console.signin import own_account, own_factors, views


def pages(site: AdminSite) -> list[URLPattern]:
    """Return the pages. Those of an incomplete sign-in are not wrapped by `site.admin_view`."""
    return [
        path("second-step/", views.second_step, name="second_step"),
        path("forgotten/", views.forgotten, name="forgotten"),
        path("passkey-options/", views.passkey_options, name="passkey_options"),
        path("reauthenticate/", site.admin_view(views.reauthenticate), name="reauthenticate"),
        # The next five are also for users who must enroll a first factor before anything else.
        path("my-sign-in/", own_account.overview, name="my_sign_in"),
        path("my-sign-in/passkeys/add/", own_factors.add_passkey, name="add_passkey"),
        path("my-sign-in/passkeys/options/", own_factors.creation_options, name="creation_options"),
        path("my-sign-in/app/", own_factors.set_up_app, name="set_up_app"),
        path("my-sign-in/backup-codes/", own_factors.new_backup_codes, name="new_backup_codes"),
        path(
            "my-sign-in/factors/<str:factor_id>/remove/",
            site.admin_view(own_factors.RemoveFactor.as_view()),
            name="remove_my_factor",
        ),
        path(
            "my-sign-in/sessions/end-others/",
            site.admin_view(own_account.end_other_sessions),
            name="end_my_other_sessions",
        ),
        path(
            "my-sign-in/sessions/<str:session_id>/end/", site.admin_view(own_account.end_session), name="end_my_session"
        ),
    ]

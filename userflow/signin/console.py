"""Password check of the Django console, with the same counters and limits as the API."""

from typing import Any

from django.contrib.auth.backends import BaseBackend
from django.http import HttpRequest
from django.utils.timezone import now

from identity_platform.api.errors import ApiError
from userflow.admins.models import AdminUser, username_is
from userflow.realms import ADMINS
from userflow.signin import attempts, passwords


class ConsoleBackend(BaseBackend):
    """Operators sign in to the console; locked, limited and unknown all look like a wrong password there."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **_: Any
    ) -> AdminUser | None:
        try:
            attempts.limit_address("signin")
            attempts.refuse_guessing_address()
            user = AdminUser.objects.filter(username_is(username or "")).first()
            who = user.pk if user else (username or "").lower()
            attempts.count(ADMINS, who, factor=attempts.PASSWORD)
            right = passwords.matches(password or "", user.password if user else None)
        except ApiError:
            return None
        if not right or user is None or not user.active or not user.is_staff:
            attempts.count_wrong_secret()
            ADMINS.record("signin.refused", target=("user", user.pk) if user else None, outcome="refused")
            return None
        if user.mfa_methods:
            # The console asks for a password only: it must not be the way around a second factor.
            ADMINS.record("console.refused", target=("user", user.pk), outcome="refused", details={"reason": "factor"})
            return None
        attempts.clear(ADMINS, who, factor=attempts.PASSWORD)
        AdminUser.objects.filter(pk=user.pk).update(last_login=now())
        ADMINS.record("console.signed_in", target=("user", user.pk))
        return user

    def get_user(self, user_id: Any) -> AdminUser | None:
        """The user while active; asked at every page, so a deactivated operator is out at once."""
        return AdminUser.objects.filter(pk=user_id, active=True).first()

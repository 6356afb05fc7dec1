"""Password check of the Django console, with the same counters and limits as the API."""

from typing import Any

from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.timezone import now

from identity_platform.api.errors import ApiError
from userflow.admins.models import AdminUser, username_is
from userflow.errors import WeakPassword
from userflow.realms import ADMINS
from userflow.signin import attempts, passwords


class PasswordRules:
    """The API's rules for new passwords, where Django asks for them: its own commands and the console's forms."""

    def validate(self, password: str, user: AbstractBaseUser | None = None) -> None:
        """Raise Django's ValidationError for what the API refuses with WeakPassword."""
        personal = (user.username, user.email) if isinstance(user, AdminUser) else ()
        try:
            passwords.check_strength(password, personal=personal)
        except WeakPassword as refusal:
            raise ValidationError((refusal.details or {})["password"]) from refusal

    def get_help_text(self) -> str:
        """What forms say before anything is typed."""
        return f"At least {passwords.SHORTEST} characters, and none of the common passwords."


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

"""django-otp's middleware for the console: `request.user.is_verified()` says whether a second factor was part of the sign-in.

django-otp would load a device model with every request. Here the session holds the factor of the sign-in, and
console.frame.access checks that the user still has it.
"""

from dataclasses import dataclass
from uuid import UUID

from django.http import HttpRequest
from django_otp import DEVICE_ID_SESSION_KEY
from django_otp import login as keep_device
from django_otp.middleware import OTPMiddleware

from userflow.accounts.models import AdminUser

__all__ = ["DEVICE_ID_SESSION_KEY", "ConsoleSecondFactor", "EnrolledFactor", "mark_verified"]


@dataclass(frozen=True, slots=True)
class EnrolledFactor:
    """A device for django-otp: the kind of factor that the user signed in with."""

    kind: str
    user_id: UUID
    confirmed: bool = True

    @property
    def persistent_id(self) -> str:
        return f"{self.kind}/{self.user_id}"


class ConsoleSecondFactor(OTPMiddleware):  # type: ignore[misc]  # django-otp has no types
    """`request.user.otp_device` and `request.user.is_verified()` on console pages."""

    def _device_from_persistent_id(self, persistent_id: str) -> EnrolledFactor:
        kind, _, user_id = persistent_id.partition("/")
        return EnrolledFactor(kind, UUID(user_id))


def mark_verified(request: HttpRequest, *, kind: str, user: AdminUser) -> None:
    """Record that `request.user` has proven a factor of this kind."""
    keep_device(request, EnrolledFactor(kind, user.pk))

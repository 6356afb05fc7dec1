"""Serializers of sign-in and sessions."""

from uuid import UUID

from rest_framework import serializers

from identity_platform.api.fields import Boolean, EmailAddress, Identifier, IpAddress, Text, fields_of
from identity_platform.api.one_of import Fixed, OneOf
from identity_platform.api.pagination import PageQuery, PaginationOut
from userflow.accounts.session_models import Session


class AdminLoginIn(serializers.Serializer[object]):
    username = Text(max_length=254, help_text="Username or e-mail address.")
    password = Text(max_length=1024, help_text="The user's password.")


class EndUserLoginIn(serializers.Serializer[object]):
    client_id = Identifier()
    client_secret = Text(
        max_length=255, required=False, help_text="For a confidential client; or send it by HTTP Basic."
    )
    email = EmailAddress()
    password = Text(max_length=1024, help_text="The user's password.")
    tenant_id = Identifier(required=False, help_text="If sent, must be the client's tenant.")
    ip_address = IpAddress(
        required=False,
        help_text="IP address of the end user, from the server of a confidential client; from others without effect.",
    )


class SignedInOut(serializers.Serializer[object]):
    mfa_required = Fixed(False)
    access_token = serializers.CharField()
    refresh_token = serializers.CharField()
    token_type = serializers.CharField()
    expires_in = serializers.IntegerField(help_text="Seconds, of the access token.")


class SecondStepRequiredOut(serializers.Serializer[object]):
    mfa_required = Fixed(True)
    mfa_token = serializers.CharField(help_text="Ticket for the second step.")
    methods = serializers.ListField(child=serializers.CharField())
    expires_in = serializers.IntegerField(help_text="Seconds, of `mfa_token`.")
    enrollment_required = serializers.BooleanField(
        required=False, help_text="True: the user has no factor and must enroll one to complete the sign-in."
    )
    enrollment_ticket = serializers.CharField(
        required=False, help_text="With `enrollment_required`: for the header X-Enrollment-Ticket, 15 minutes."
    )


class AdminUserBrief(serializers.Serializer[object]):
    id = serializers.UUIDField()
    username = serializers.CharField()
    email = serializers.CharField()


class AdminSignedInOut(SignedInOut):
    user = AdminUserBrief()


class AdminLoginOut(OneOf):
    choices = (AdminSignedInOut, SecondStepRequiredOut)


class EndUserBrief(serializers.Serializer[object]):
    id = serializers.UUIDField()
    email = serializers.CharField()
    name = serializers.CharField()


class EndUserSignedInOut(SignedInOut):
    user = EndUserBrief()
    tenant_id = serializers.UUIDField()
    client_id = serializers.UUIDField()


class EndUserLoginOut(OneOf):
    choices = (EndUserSignedInOut, SecondStepRequiredOut)


class LogoutIn(serializers.Serializer[object]):
    all = Boolean(required=False, default=False, help_text="True: every session of the caller.")


class EndedSessionsOut(serializers.Serializer[object]):
    message = serializers.CharField()
    sessions_ended = serializers.IntegerField()


class SessionNamedQuery(serializers.Serializer[object]):
    user_id = Identifier(required=False, help_text="The user; the caller if omitted.")
    tenant_id = Identifier(required=False, help_text="For operators: the user's tenant.")


class SessionsOfUserQuery(SessionNamedQuery):
    user_id = Identifier(help_text="The user.")


class SessionListQuery(SessionNamedQuery, PageQuery):
    pass


class SessionOut(serializers.Serializer[object]):
    id = serializers.UUIDField()
    user_id = serializers.UUIDField()
    client_id = serializers.UUIDField(
        allow_null=True, help_text="Client that the user signed in through; null for admin users."
    )
    amr = serializers.ListField(child=serializers.CharField())
    acr = serializers.CharField(help_text="Assurance level: aal1 (one factor) or aal2.")
    auth_time = serializers.DateTimeField()
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(help_text="When the session ends, unless it is used before.")
    address = serializers.CharField()
    user_agent = serializers.CharField()
    current = serializers.BooleanField(help_text="Whether it is the session of this call's token.")


class SessionListOut(PaginationOut):
    sessions = SessionOut(many=True)


class EndedUserSessionsOut(serializers.Serializer[object]):
    message = serializers.CharField()
    user_id = serializers.UUIDField()
    sessions_ended = serializers.IntegerField()


def session_record(session: Session, *, current: UUID | None) -> dict[str, object]:
    """Return a session as the API shows it."""
    return fields_of(SessionOut, session, current=session.pk == current)

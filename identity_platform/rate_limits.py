"""The rate limits, read from the environment: how many, and in how many seconds."""

from identity_platform.environment import integer

# The specification sets the registry's 100.
LIMITS: dict[str, tuple[int, int]] = {
    "signin": (integer("LIMIT_SIGNIN_PER_MINUTE", 120, least=1), 60),
    "registration": (integer("LIMIT_REGISTRATION_PER_MINUTE", 120, least=1), 60),
    # Passkey ceremonies that name a user. One without a user is a sign-in.
    "ceremony": (integer("LIMIT_CEREMONIES_PER_MINUTE", 600, least=1), 60),
    "unknown_user": (integer("LIMIT_UNKNOWN_USER_PER_MINUTE", 120, least=1), 60),
    "wrong_secret": (integer("LIMIT_WRONG_SECRETS_PER_10_MINUTES", 300, least=1), 600),
    "forgot": (integer("LIMIT_FORGOT_PER_HOUR", 5, least=1), 3600),
    "email_resend": (integer("LIMIT_EMAIL_RESEND_PER_HOUR", 5, least=1), 3600),
    # Of one kind to one address: "your password was changed" and its like.
    "mail": (integer("LIMIT_MAILS_PER_HOUR", 20, least=1), 3600),
    "invitation": (integer("LIMIT_INVITATIONS_PER_HOUR", 200, least=1), 3600),
    # Calls that import or export people.
    "transfer": (integer("LIMIT_TRANSFER_PER_MINUTE", 30, least=1), 60),
    "registry": (integer("LIMIT_REGISTRY_PER_MINUTE", 100, least=1), 60),
    "anonymous_registry": (integer("LIMIT_ANONYMOUS_REGISTRY_PER_MINUTE", 300, least=1), 60),
}

# Text messages.
SMS_LIMITS: dict[str, tuple[int, int]] = {
    "user_minute": (integer("LIMIT_SMS_PER_USER_MINUTE", 1, least=1), 60),
    "user_hour": (integer("LIMIT_SMS_PER_USER_HOUR", 5, least=1), 3600),
    "user_day": (integer("LIMIT_SMS_PER_USER_DAY", 10, least=1), 86400),
    "address_hour": (integer("LIMIT_SMS_PER_ADDRESS_HOUR", 20, least=1), 3600),
    # Over all tenants.
    "number_hour": (integer("LIMIT_SMS_PER_NUMBER_HOUR", 5, least=1), 3600),
    "number_day": (integer("LIMIT_SMS_PER_NUMBER_DAY", 10, least=1), 86400),
    # A fifth of it is kept for callers with a proof (mfa/sms/sending.py).
    "tenant_day": (integer("LIMIT_SMS_PER_TENANT_DAY", 1000, least=1), 86400),
}

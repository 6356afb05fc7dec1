"""Limits: how often, how long and how many."""

from identity_platform.environment import integer

# How many, and in how many seconds. The specification sets the registry's 100.
LIMITS: dict[str, tuple[int, int]] = {
    "signin": (integer("LIMIT_SIGNIN_PER_MINUTE", 120, least=1), 60),
    "registration": (integer("LIMIT_REGISTRATION_PER_MINUTE", 120, least=1), 60),
    # Passkey ceremonies that begin. A page that offers passkeys by autofill begins one at every view.
    "ceremony": (integer("LIMIT_CEREMONIES_PER_MINUTE", 600, least=1), 60),
    # Requests of applications that are stored: for a hosted page, pushed, or for a device.
    "authorization": (integer("LIMIT_AUTHORIZATIONS_PER_MINUTE", 600, least=1), 60),
    # Bodies that cannot be read, without a token.
    "malformed": (integer("LIMIT_MALFORMED_BODIES_PER_MINUTE", 300, least=1), 60),
    "unknown_user": (integer("LIMIT_UNKNOWN_USER_PER_MINUTE", 120, least=1), 60),
    # Wrong codes of devices (RFC 8628). openid/device/codes.py says what they protect.
    "user_code": (integer("LIMIT_WRONG_USER_CODES_PER_10_MINUTES", 30, least=1), 600),
    "wrong_secret": (integer("LIMIT_WRONG_SECRETS_PER_10_MINUTES", 300, least=1), 600),
    "forgot": (integer("LIMIT_FORGOT_PER_HOUR", 5, least=1), 3600),
    "email_resend": (integer("LIMIT_EMAIL_RESEND_PER_HOUR", 5, least=1), 3600),
    # Six-digit codes that all callers together may try at one address of a tenant; its links go on.
    "email_codes": (integer("LIMIT_EMAIL_CODES_PER_ADDRESS_HOUR", 100, least=1), 3600),
    # Of one kind to one address: "your password was changed" and its like.
    "mail": (integer("LIMIT_MAILS_PER_HOUR", 20, least=1), 3600),
    # Requested by callers who need not be the owner of the address, over all tenants: to one address, a fifth of it kept for
    # callers whom its user is known to be, and of one network to one address.
    "mail_address_hour": (integer("LIMIT_MAILS_PER_ADDRESS_HOUR", 25, least=1), 3600),
    "mail_address_day": (integer("LIMIT_MAILS_PER_ADDRESS_DAY", 100, least=1), 86400),
    "mail_address_network": (integer("LIMIT_MAILS_PER_ADDRESS_AND_NETWORK_HOUR", 8, least=1), 3600),
    "invitation": (integer("LIMIT_INVITATIONS_PER_HOUR", 200, least=1), 3600),
    # Previews of branding in the console: each can decode an image.
    "preview": (integer("LIMIT_PREVIEWS_PER_MINUTE", 120, least=1), 60),
    # Calls that import or export people.
    "transfer": (integer("LIMIT_TRANSFER_PER_MINUTE", 30, least=1), 60),
    "registry": (integer("LIMIT_REGISTRY_PER_MINUTE", 100, least=1), 60),
    "anonymous_registry": (integer("LIMIT_ANONYMOUS_REGISTRY_PER_MINUTE", 300, least=1), 60),
}

# Registrations of one network that wait for their addresses to be verified: of one address, and in one tenant.
PENDING_REGISTRATIONS_PER_ADDRESS = integer("PENDING_REGISTRATIONS_PER_ADDRESS", 5, least=1)
PENDING_REGISTRATIONS_PER_NETWORK = integer("PENDING_REGISTRATIONS_PER_NETWORK", 1000, least=1)

# Text messages.
SMS_LIMITS: dict[str, tuple[int, int]] = {
    "user_minute": (integer("LIMIT_SMS_PER_USER_MINUTE", 1, least=1), 60),
    "user_hour": (integer("LIMIT_SMS_PER_USER_HOUR", 5, least=1), 3600),
    "user_day": (integer("LIMIT_SMS_PER_USER_DAY", 10, least=1), 86400),
    "address_hour": (integer("LIMIT_SMS_PER_ADDRESS_HOUR", 20, least=1), 3600),
    # Over all tenants.
    "number_hour": (integer("LIMIT_SMS_PER_NUMBER_HOUR", 5, least=1), 3600),
    "number_day": (integer("LIMIT_SMS_PER_NUMBER_DAY", 10, least=1), 86400),
    # A fifth of it is kept for codes to enrolled phones, for callers with a proof (mfa/sms/sending.py).
    "tenant_day": (integer("LIMIT_SMS_PER_TENANT_DAY", 1000, least=1), 86400),
}

# How long a synchronisation over REST may keep a request; longer ones are the command's.
DIRECTORY_REQUEST_SECONDS = integer("DIRECTORY_REQUEST_SECONDS", 30, least=1, most=300)
# How long the command reads one directory: a server that never ends would keep all others waiting.
DIRECTORY_COMMAND_SECONDS = integer("DIRECTORY_COMMAND_SECONDS", 3600, least=1, most=86_400)
DIRECTORIES_PER_TENANT = integer("DIRECTORIES_PER_TENANT", 10, least=1, most=1000)
DOMAINS_PER_TENANT = integer("DOMAINS_PER_TENANT", 20, least=1, most=1000)

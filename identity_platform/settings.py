"""Settings of the platform and of Django, read from the environment by `identity_platform.environment`. Imports no app."""

import os
from pathlib import Path
from urllib.parse import quote

from identity_platform import installation
from identity_platform.environment import (
    authorities,
    boolean,
    choice,
    choices,
    database,
    directory_clouds,
    domain,
    ensure_writable,
    existing_file,
    header_name,
    http_url,
    integer,
    mail,
    name_servers,
    networks,
    origins,
    required,
    security_txt,
    server_urls,
    state_folder,
    string_list,
    text,
    translated_languages,
)
from identity_platform.library_settings import *  # noqa: F403  # what depends on no variable
from identity_platform.limit_settings import *  # noqa: F403  # likewise

# The checkout, or the folder of the package with the files that a checkout has beside its Python packages.
BASE_DIR = installation.FILES

# --- where state lives -----------------------------------------------------------------------------------------------

VAR = state_folder()
HOST = text("HOST", "127.0.0.1") or ""
PORT = integer("PORT", 8000, least=1, most=65535)

# Embedded mode: no database server is named, so private servers are started under VAR.
EMBEDDED = text("DATABASE_URL") is None
_database_url, _redis_url = server_urls(text("DATABASE_URL"), text("REDIS_URL"), VAR)

if EMBEDDED:
    from identity_platform.serving import embedded

    _keys = embedded.keys(VAR)
    SECRET_KEY = text("SECRET_KEY", _keys.secret_key)
    ENCRYPTION_KEYS = text("ENCRYPTION_KEYS", _keys.encryption_keys)
else:
    SECRET_KEY = required("SECRET_KEY", "Django signs with it (at least 50 random characters).")
    ENCRYPTION_KEYS = required(
        "ENCRYPTION_KEYS",
        "it seals every secret in the databases. Form: `k1:<base64 of 32 random bytes>`, newest first.",
    )
# Where bin/serve serves the sample application for the demo tenant; 0 for none, as outside embedded mode.
DEMO_PORT = integer("DEMO_PORT", min(PORT + 1, 65535), least=0, most=65535) if EMBEDDED else 0
DEBUG = False
ALLOWED_HOSTS = string_list("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]", HOST] if EMBEDDED else [])
BASE_URL = (text("BASE_URL") or f"http://localhost:{PORT}").rstrip("/")
METRICS_TOKEN = text("METRICS_TOKEN")
# A collector of OpenTelemetry traces; unset, there are none.
TRACES_ENDPOINT = http_url("OTEL_EXPORTER_OTLP_ENDPOINT")
TRACES_SERVICE = text("OTEL_SERVICE_NAME", "identity-platform")
# Where to report vulnerabilities (RFC 9116), served as it is; unset, the path is a 404.
SECURITY_TXT = security_txt("SECURITY_TXT")
# Each worker process keeps its metrics in a file, and the one that serves /metrics adds them up. Must be set before the
# first metric is created.
_figures = text("PROMETHEUS_MULTIPROC_DIR")
ensure_writable(Path(_figures or VAR / "metrics"), "PROMETHEUS_MULTIPROC_DIR" if _figures else "IDENTITY_VAR")
os.environ["PROMETHEUS_MULTIPROC_DIR"] = _figures or str(VAR / "metrics")
TRUSTED_PROXY_HOPS = integer("TRUSTED_PROXY_HOPS", 0, most=10)
# Mutual TLS (RFC 8705): the header in which a proxy passes the client's certificate on, its form, and the networks of proxies
# from which it is taken. Unset, there are no certificates.
CLIENT_CERTIFICATE_HEADER = header_name("CLIENT_CERTIFICATE_HEADER")
CLIENT_CERTIFICATE_FORMAT = choice("CLIENT_CERTIFICATE_FORMAT", ("pem", "rfc9440", "xfcc"))
CLIENT_CERTIFICATE_PROXIES = networks("CLIENT_CERTIFICATE_PROXIES", [])
if CLIENT_CERTIFICATE_HEADER:
    required("CLIENT_CERTIFICATE_PROXIES", "it lists the networks of the proxies that set CLIENT_CERTIFICATE_HEADER.")
# A second address of the platform, where the proxy asks for certificates, so that browsers are not asked at BASE_URL.
MTLS_BASE_URL = http_url("MTLS_BASE_URL") or ""

# --- databases -------------------------------------------------------------------------------------------------------

PGBOUNCER = boolean("PGBOUNCER", False)
# Unless it is stated, a worker opens what it needs up to the base, and keeps more only while the server has plenty
# (`tenants.backend.leases`). Behind a pooler and in commands connections are not counted, so the base is the limit.
TENANT_CONNECTION_BUDGET = integer("TENANT_CONNECTION_BUDGET", 500, least=1, most=5000)
BASE_CONNECTION_BUDGET = integer("TENANT_CONNECTION_BUDGET", 20, least=1, most=5000)
WEB_WORKERS = integer("WEB_WORKERS", os.cpu_count() or 1, least=1, most=256)
# How many machines (or pods) serve requests: room for their connections to the global database is kept on its server.
PLATFORM_HOSTS = integer("PLATFORM_HOSTS", 1, least=1, most=1000)
# Connections of each database server that processes do not lease: for commands, and for programs that are not ours.
RESERVED_CONNECTIONS = integer("RESERVED_CONNECTIONS", 20, most=5000)
# How long the leased connections of a killed process stay leased.
CONNECTION_LEASE_SECONDS = 30.0
# A login holds its thread while it waits for a core to hash on; with two threads two logins would stop everybody else.
WEB_THREADS = integer("WEB_THREADS", 16, least=1, most=64)
TENANT_CONNECTION_WAIT_SECONDS = 2.0
# How long a write waits while its tenant's database is migrated or switched to another server.
TENANT_PAUSE_WAIT_MS = integer("TENANT_PAUSE_WAIT_MS", 3000, most=30_000)
TENANT_DATABASE_PREFIX = text("TENANT_DATABASE_PREFIX", "tenant_")
TENANT_WARM_POOL = integer("TENANT_WARM_POOL", 4, most=1000)
# A statement that a tenant database has not answered by then is given up, so that one slow tenant cannot hold workers.
TENANT_STATEMENT_TIMEOUT_MS = integer("TENANT_STATEMENT_TIMEOUT_MS", 2000, least=100)

_default = database(_database_url, "DATABASE_URL")
_options = {
    "connect_timeout": 2,
    # A server that is gone from the network (power, partition, firewall) closes no connection: without this the kernel retries
    # for a quarter of an hour, and the thread waits.
    "tcp_user_timeout": 2500,
    # Behind PgBouncer in transaction mode a prepared statement would meet another server connection.
    "prepare_threshold": None if PGBOUNCER else 5,
    # Without it Django interpolates parameters into the statement, and the server plans every statement again.
    "server_side_binding": not PGBOUNCER,
    "application_name": "identity",
}
_common = {
    **_default,
    "TIME_ZONE": None,
    "AUTOCOMMIT": True,
    "ATOMIC_REQUESTS": False,
    "DISABLE_SERVER_SIDE_CURSORS": True,
    "CONN_MAX_AGE": None,
    "OPTIONS": {**_options, **_default["OPTIONS"]},
}
DATABASES: dict[str, dict[str, object]] = {
    "default": {**_common, "ENGINE": "identity_platform.postgresql", "CONN_HEALTH_CHECKS": True},
    # The one alias of all tenant databases: `tenants.backend` decides which database it is at the moment.
    "tenant": {**_common, "ENGINE": "tenants.backend", "NAME": "no_tenant_entered", "CONN_HEALTH_CHECKS": False},
}
# CREATE DATABASE and migrations cannot go through a pooler; this connection goes straight to the server.
_admin = database(text("DATABASE_ADMIN_URL") or _database_url, "DATABASE_ADMIN_URL")
DATABASE_ADMIN = {
    **_admin,
    "OPTIONS": {"connect_timeout": 5, "application_name": "identity-admin", **_admin["OPTIONS"]},
}
# What `check --deploy` accepts without TLS outside this machine (`tenants.database_servers.transport`).
UNENCRYPTED_CONNECTIONS = choices("UNENCRYPTED_CONNECTIONS", ("database", "cache", "mail", "directory"))
DATABASE_ROUTERS = ["tenants.entering.router.TenantRouter"]

# --- background work --------------------------------------------------------------------------------------------------

# identity_platform.task_queue explains the queue and its times.
PROCRASTINATE_WORKER_DEFAULTS = {
    "listen_notify": False,
    "install_signal_handlers": False,
    "shutdown_graceful_timeout": 0,
    "update_heartbeat_interval": 5.0,
    "stalled_worker_timeout": 20.0,
    "delete_jobs": "always",
}
# A daily task that no worker has started because none ran at night is started by the first worker of the day.
PROCRASTINATE_PERIODIC_DEFAULTS = {"max_delay": 86_400}

# --- caches ----------------------------------------------------------------------------------------------------------

REDIS_URL = _redis_url
REDIS_TIMEOUT_SECONDS = 0.25
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        # A list: Django splits text at commas, which separate the Sentinels.
        "LOCATION": [REDIS_URL],
        "KEY_PREFIX": text("CACHE_KEY_PREFIX", "identity"),
        "OPTIONS": {
            "socket_timeout": REDIS_TIMEOUT_SECONDS,
            "socket_connect_timeout": REDIS_TIMEOUT_SECONDS,
            "pool_class": "identity_platform.api.valkey.PoolOfUrl",
        },
    },
    "ratelimit": {
        "BACKEND": "identity_platform.api.cache.RateLimitCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": text("CACHE_KEY_PREFIX", "identity"),
    },
}
RATELIMIT_USE_CACHE = "ratelimit"

# --- apps and the way of a request -----------------------------------------------------------------------------------

# The migrations of these run in tenants' databases too.
PLATFORM_APPS = ["identity_platform.audit", "tenants", "userflow", "registry", "mfa", "openid", "console"]
INSTALLED_APPS = [
    *PLATFORM_APPS[:-1],
    # Not its default one, which would put a site of its own in the place of the console.
    "unfold.apps.BasicAppConfig",
    "unfold.contrib.filters",
    "console.apps.ConsoleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.humanize",
    "django.contrib.staticfiles",
    "django_otp",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "corsheaders",
    "procrastinate.contrib.django",
    # After what it takes the lists of away.
    PLATFORM_APPS[-1],
]
MIDDLEWARE = [
    *(["identity_platform.tracing.Traced"] if TRACES_ENDPOINT else []),
    "identity_platform.api.middleware.ApiMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "tenants.middleware.fence_middleware.Fence",
    "tenants.middleware.mode_middleware.OperatingModes",
    "tenants.addresses.hosts.TenantHosts",
    "identity_platform.api.middleware.SecurityMiddleware",
    "tenants.middleware.rejections.RejectedCalls",
    "identity_platform.api.middleware.CrossOrigin",
    "openid.cors.TenantCrossOrigin",
    "console.frame.middleware.ConsoleStaticFiles",
    "console.frame.middleware.ConsoleMiddleware",
]
# Of the console's pages only, inside those above.
CONSOLE_MIDDLEWARE = [
    # Django adds random bytes to compressed pages, so that lengths say little about secrets in them (BREACH).
    "django.middleware.gzip.GZipMiddleware",
    "console.frame.middleware.ConsoleLanguage",
    "console.frame.sent_forms.SentForms",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "console.frame.middleware.ConsoleSignIn",
    "console.signin.otp_middleware.ConsoleSecondFactor",
    "django.contrib.messages.middleware.MessageMiddleware",
]
ROOT_URLCONF = "identity_platform.urls"
# The paths on the sign-in domains of tenants.
SIGN_IN_DOMAIN_URLCONF = "openid.domain_urls"
WSGI_APPLICATION = "identity_platform.wsgi.application"
APPEND_SLASH = False
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "builtins": ["identity_platform.api.template_tags"],
        },
    }
]
# Built by bin/docs, bin/release and the container image.
DOCS_SITE = BASE_DIR / "docs" / "_site"
# Served from the packages themselves: nothing to collect before a start.
WHITENOISE_USE_FINDERS = True
AUTH_USER_MODEL = "userflow.AdminUser"
SILENCED_SYSTEM_CHECKS = [
    # Usernames are unique without regard to case, by a constraint that this check does not see.
    "auth.W004",
    # Checks by name for SecurityMiddleware; the platform uses a subclass, which redirects with 308.
    "security.W001",
    # Look in MIDDLEWARE for what is in CONSOLE_MIDDLEWARE: forms, sign-in, messages and sessions. The API takes no cookies.
    "security.W003",
    "admin.E408",
    "admin.E409",
    "admin.E410",
]
# Django's own sign-in is not used: the console has the platform's own steps (console.signin).
AUTHENTICATION_BACKENDS: list[str] = []
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = True
LANGUAGE_CODE = "en"
# The console speaks the languages that catalogues are there for: its own, and those that an installation adds
# (docs/operators-console.md).
LOCALE_PATHS = [(VAR if installation.IS_PACKAGE else BASE_DIR) / "locale"]
_console_locale = Path(__file__).resolve().parent.parent / "console" / "locale"
LANGUAGES = [("en", "English"), *translated_languages(_console_locale, *LOCALE_PATHS)]
FORMAT_MODULE_PATH = "console.formats"
API_BODY_LIMIT = 1024 * 1024
DATA_UPLOAD_MAX_MEMORY_SIZE = API_BODY_LIMIT + 1

# --- transport and browser safety ------------------------------------------------------------------------------------

# TLS ends at the proxy in front; outside embedded mode cookies travel over it only.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = not EMBEDDED
# Browsers take a cookie of this prefix from this very host only, over TLS and for all its paths (RFC 6265bis section
# 4.1.3.2): no neighbouring subdomain can plant one. Embedded mode is plain HTTP, where browsers reject the prefix.
COOKIE_PREFIX = "" if EMBEDDED else "__Host-"
SESSION_COOKIE_NAME = f"{COOKIE_PREFIX}sessionid"
CSRF_COOKIE_NAME = f"{COOKIE_PREFIX}csrftoken"
CSRF_FAILURE_VIEW = "console.signin.errors.expired_form"
LANGUAGE_COOKIE_NAME = f"{COOKIE_PREFIX}language"
MESSAGE_STORAGE = "console.frame.message_storage.MessageStorage"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_ENGINE = "console.signin.store"
# Operators work with a second factor only, over the API and in the console; one without enrols it first.
OPERATORS_REQUIRE_FACTOR = boolean("OPERATORS_REQUIRE_FACTOR", not EMBEDDED)
SECURE_SSL_REDIRECT = boolean("SECURE_SSL_REDIRECT", not EMBEDDED)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if TRUSTED_PROXY_HOPS else None
SECURE_HSTS_SECONDS = 0 if EMBEDDED else integer("SECURE_HSTS_SECONDS", 31536000)
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = not EMBEDDED
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "no-referrer"
# Pages of other origins that may call the API from a browser. A list of the operator's, never of the tenants: in an open
# enrollment window the caller's address counts as proof, and a page of another site would share it.
CORS_ALLOWED_ORIGINS = string_list("CORS_ALLOWED_ORIGINS", [])
# --- signing in ------------------------------------------------------------------------------------------------------

PASSWORD_HASHERS = ["userflow.credentials.passwords.Argon2Hasher"]
AUTH_PASSWORD_VALIDATORS = [{"NAME": "userflow.signin.console.PasswordRules"}]
# How many passwords one worker process hashes at the same moment.
HASHES_AT_ONCE = integer("HASHES_AT_ONCE", max(1, (os.cpu_count() or 1) // WEB_WORKERS), least=1, most=256)
# How many may hash or wait for it: the other threads stay free for requests that hash nothing.
HASHES_WAITED_FOR = integer("HASHES_WAITED_FOR", max(HASHES_AT_ONCE, WEB_THREADS // 2), least=1, most=256)
PASSWORD_HASH_WAIT_SECONDS = 2.0
# Hashes of other systems take up to half a second each, and after an import everyone signs in for the first time: half as
# many run at once, and more sign-ins wait for them, longer. A quarter of the threads stays free of them.
FOREIGN_HASHES_AT_ONCE = max(1, HASHES_AT_ONCE // 2)
FOREIGN_HASHES_WAITED_FOR = integer("FOREIGN_HASHES_WAITED_FOR", max(1, WEB_THREADS * 3 // 4), least=1, most=256)
FOREIGN_HASH_WAIT_SECONDS = integer("FOREIGN_HASH_WAIT_SECONDS", 8, least=1, most=30)
NEW_HASH_WAIT_SECONDS = 10.0
# A file of further forbidden passwords, one per line (userflow/credentials/blocklist.py).
PASSWORD_BLOCKLIST = existing_file("PASSWORD_BLOCKLIST")
# A file of cities in MaxMind's format, for the places of sessions (identity_platform/places.py).
GEOIP_DATABASE = existing_file("GEOIP_DATABASE")
# Where the link in a password reset mail leads. The token follows the `#`.
PASSWORD_RESET_URL = text("PASSWORD_RESET_URL", f"{BASE_URL}/password/reset")
# The same for mails that verify an address and for invitations.
EMAIL_VERIFICATION_URL = text("EMAIL_VERIFICATION_URL", f"{BASE_URL}/email/verify")
EMAIL_UNDO_URL = f"{BASE_URL}/email/undo"
INVITATION_URL = text("INVITATION_URL", f"{BASE_URL}/invitations/accept")
# The pages above for end users, where the operator has set one; else each tenant's hosted pages.
END_USER_PAGES = {name: text(name) for name in ("PASSWORD_RESET_URL", "EMAIL_VERIFICATION_URL", "INVITATION_URL")}
# How long the secret before the last one still works after a rotation.
CLIENT_SECRET_OVERLAP_SECONDS = integer("CLIENT_SECRET_OVERLAP_SECONDS", 86400, most=30 * 86400)
# Private networks that keys of clients (`jwks_uri`) are fetched from and logout tokens are sent to, comma-separated.
CLIENT_ALLOWED_NETWORKS = networks("CLIENT_ALLOWED_NETWORKS", ["127.0.0.0/8", "::1/128"] if EMBEDDED else [])
# Whether http:// is taken too; into those networks only.
CLIENT_PLAIN_HTTP = boolean("CLIENT_PLAIN_HTTP", EMBEDDED)
TOKEN_ISSUER = (text("TOKEN_ISSUER") or BASE_URL).rstrip("/")
# Whether DPoP proofs must contain a nonce of this server (RFC 9449 section 8).
DPOP_NONCES = boolean("DPOP_NONCES", False)
TOKEN_AUDIENCE = text("TOKEN_AUDIENCE", "identity-api")
ACCESS_TOKEN_SECONDS = integer("ACCESS_TOKEN_SECONDS", 3600, least=60, most=86400)
# A session ends when it was not used for its idle limit, and after its absolute limit at the latest; a refresh extends the
# idle limit only. The same limits hold for the API and for the console.
OPERATOR_SESSION_IDLE_SECONDS = integer("OPERATOR_SESSION_IDLE_SECONDS", 3600, least=300, most=86400)
OPERATOR_SESSION_SECONDS = integer("OPERATOR_SESSION_SECONDS", 12 * 3600, least=600, most=7 * 86400)
ADMIN_SESSION_IDLE_SECONDS = integer("ADMIN_SESSION_IDLE_SECONDS", 8 * 3600, least=300, most=7 * 86400)
ADMIN_SESSION_SECONDS = integer("ADMIN_SESSION_SECONDS", 86400, least=600, most=30 * 86400)
# Of end users: idle, and absolute. Tenants may shorten both.
REFRESH_TOKEN_SECONDS = integer("REFRESH_TOKEN_SECONDS", 14 * 86400, least=3600)
SESSION_SECONDS = integer("SESSION_SECONDS", 90 * 86400, least=3600)
# The console's cookie outlives no session of its users.
SESSION_COOKIE_AGE = max(OPERATOR_SESSION_SECONDS, ADMIN_SESSION_SECONDS)
# How long a refresh token that was used gets its successor again, as long as that was not used.
REFRESH_OVERLAP_SECONDS = integer("REFRESH_OVERLAP_SECONDS", 10, least=0, most=300)
# Keys, issuer and audience are chosen for each token, by the backend of access tokens.
SIMPLE_JWT = {"TOKEN_TYPE_CLAIM": "typ", "ALGORITHM": "ES256"}
ENROLLMENT_WINDOW_MINUTES = integer("ENROLLMENT_WINDOW_MINUTES", 30, least=1, most=1440)
WEBAUTHN_RP_ID = domain("WEBAUTHN_RP_ID", "localhost" if EMBEDDED else None)
WEBAUTHN_ORIGINS = origins("WEBAUTHN_ORIGINS", [f"http://localhost:{PORT}"] if EMBEDDED else [])
# The relying party of admin users, where the console has a host of its own. By default it is the one above, so admins'
# passkeys go on working when nothing is set.
CONSOLE_RP_ID = domain("CONSOLE_RP_ID", WEBAUTHN_RP_ID)
CONSOLE_ORIGINS = origins(
    "CONSOLE_ORIGINS", WEBAUTHN_ORIGINS if CONSOLE_RP_ID == WEBAUTHN_RP_ID else [f"https://{CONSOLE_RP_ID}"]
)

# How long events of the audit trail are kept; the database itself prevents deleting them in their first 30 days.
AUDIT_RETENTION_DAYS = integer("AUDIT_RETENTION_DAYS", 400, least=30, most=36_500)

# How long the final backup of a deleted tenant can bring it back; 0: none is made.
DELETED_TENANT_BACKUP_DAYS = integer("DELETED_TENANT_BACKUP_DAYS", 7, most=3650)

# How old a backup can be that is restored, as revocations since are kept for so long; 0: as long as the tenant's data key.
REVOCATION_JOURNAL_DAYS = integer("REVOCATION_JOURNAL_DAYS", 0, most=36_500)

# Where the console writes backups of tenants (backup_tenant is told where), and where final backups are.
BACKUP_FOLDER = Path(text("BACKUP_FOLDER") or VAR / "backups")

# Of backup_tenants s3://…, with the names that other programs use. Without keys: the role of the machine.
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY = text("AWS_ACCESS_KEY_ID"), text("AWS_SECRET_ACCESS_KEY")
AWS_SESSION_TOKEN = text("AWS_SESSION_TOKEN")
AWS_REGION = text("AWS_REGION") or text("AWS_DEFAULT_REGION") or "us-east-1"
AWS_ENDPOINT_URL = text("AWS_ENDPOINT_URL")
# The bucket in the host name instead of the path, which few storages besides Amazon's have set up.
AWS_VIRTUAL_HOSTED_STYLE_REQUEST = boolean("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", AWS_ENDPOINT_URL is None)
BACKUP_S3_RETRIES = integer("BACKUP_S3_RETRIES", 10, most=100)

# --- directories and domains -----------------------------------------------------------------------------------------

# Tenants name the servers that people are synchronised from. Public addresses are let through; of all others only those
# in these networks. A newcomer's directory runs beside the platform, so embedded mode lets loopback through.
DIRECTORY_ALLOWED_NETWORKS = networks("DIRECTORY_ALLOWED_NETWORKS", ["127.0.0.0/8", "::1/128"] if EMBEDDED else [])
# LDAP without TLS carries the reading user's password in the clear.
DIRECTORY_ALLOW_PLAIN_LDAP = boolean("DIRECTORY_ALLOW_PLAIN_LDAP", False)
DIRECTORY_CLOUDS = directory_clouds("DIRECTORY_CLOUDS")

# Private networks that identity providers of tenants may be in, comma-separated: discovery, keys, tokens, metadata.
FEDERATION_ALLOWED_NETWORKS = networks("FEDERATION_ALLOWED_NETWORKS", ["127.0.0.0/8", "::1/128"] if EMBEDDED else [])
# Whether http:// is taken too; into those networks only.
FEDERATION_PLAIN_HTTP = boolean("FEDERATION_PLAIN_HTTP", EMBEDDED)
# Time limit of one call to an identity provider. A sign-in makes up to four.
FEDERATION_TIMEOUT_SECONDS = integer("FEDERATION_TIMEOUT_SECONDS", 5, least=1, most=30)

# DNS servers that look up the records of tenants' domains; without any, those of the machine.
DNS_RESOLVERS = name_servers("DNS_RESOLVERS")

# --- messages out ----------------------------------------------------------------------------------------------------

OUTBOX = VAR / "outbox"
_email_url = text("EMAIL_URL") or (
    f"file:{quote(str(OUTBOX / 'mail'))}"
    if EMBEDDED
    else required("EMAIL_URL", "people get invitations and links by mail. Form: smtp://user:password@host:587.")
)
# EMAIL_BACKEND and the settings that belong to it.
globals().update(mail(_email_url))
SMS_BACKEND = text("SMS_BACKEND", "mfa.sms.gateway.FileGateway" if EMBEDDED else None)
SMS_TWILIO_URL = (text("SMS_TWILIO_URL") or "https://api.twilio.com").rstrip("/")
SMS_TWILIO_ACCOUNT_SID = text("SMS_TWILIO_ACCOUNT_SID")
SMS_TWILIO_AUTH_TOKEN = text("SMS_TWILIO_AUTH_TOKEN")
SMS_TWILIO_FROM = text("SMS_TWILIO_FROM")
SMS_HTTP_URL = text("SMS_HTTP_URL")
SMS_HTTP_TOKEN = text("SMS_HTTP_TOKEN")
# Countries that codes are sent to where a tenant has no list of its own (ISO 3166, comma-separated); empty: all.
SMS_COUNTRIES = string_list("SMS_COUNTRIES", [])
# The alarm: of so many messages to a country within a day, fewer than this share (in percent) were ever used.
SMS_ALARM_MESSAGES = integer("SMS_ALARM_MESSAGES", 20, least=1)
SMS_ALARM_PERCENT = integer("SMS_ALARM_PERCENT", 25, most=100)
# Authorities that outbound TLS trusts beside the public ones (PEM), mostly given as OUTBOUND_CA_FILE.
OUTBOUND_CA = authorities("OUTBOUND_CA")
# Private networks that webhooks may be sent to, comma-separated; embedded mode takes a consumer on this machine.
WEBHOOK_ALLOWED_NETWORKS = networks("WEBHOOK_ALLOWED_NETWORKS", ["127.0.0.0/8", "::1/128"] if EMBEDDED else [])
# Whether http:// is taken too; into those networks only.
WEBHOOK_PLAIN_HTTP = boolean("WEBHOOK_PLAIN_HTTP", EMBEDDED)
WEBHOOK_TIMEOUT_SECONDS = integer("WEBHOOK_TIMEOUT_SECONDS", 10, least=1, most=30)
WEBHOOK_ENDPOINTS_PER_TENANT = integer("WEBHOOK_ENDPOINTS_PER_TENANT", 10, least=1, most=100)
# How long a message is tried again, and the first and the longest wait between two tries.
WEBHOOK_RETRY_SECONDS = integer("WEBHOOK_RETRY_SECONDS", 86_400, most=14 * 86_400)
WEBHOOK_RETRY_FIRST_SECONDS = integer("WEBHOOK_RETRY_FIRST_SECONDS", 5, least=1, most=3600)
WEBHOOK_RETRY_LONGEST_SECONDS = integer("WEBHOOK_RETRY_LONGEST_SECONDS", 3 * 3600, least=1, most=86_400)
# An endpoint that has failed for so many days is disabled, and the tenant's admins are notified.
WEBHOOK_FAILING_DAYS = integer("WEBHOOK_FAILING_DAYS", 5, least=1, most=365)
# How long the secret before the last one still signs after a rotation.
WEBHOOK_SECRET_OVERLAP_SECONDS = integer("WEBHOOK_SECRET_OVERLAP_SECONDS", 86_400, most=30 * 86_400)
WEBHOOK_DELIVERED_DAYS = integer("WEBHOOK_DELIVERED_DAYS", 7, least=1, most=365)
WEBHOOK_DEAD_DAYS = integer("WEBHOOK_DEAD_DAYS", 30, least=1, most=365)
# How many endpoints a deliverer serves at the same moment, and how often it looks at a tenant that gave no hint.
WEBHOOK_THREADS = integer("WEBHOOK_THREADS", 16, least=1, most=256)
WEBHOOK_SWEEP_SECONDS = integer("WEBHOOK_SWEEP_SECONDS", 60, least=1, most=86_400)
# How long a mail is tried again that the mail server does not take, and how long it is kept when it is given up.
MAIL_RETRY_SECONDS = integer("MAIL_RETRY_SECONDS", 3 * 86_400, least=60, most=14 * 86_400)
MAIL_DEAD_DAYS = integer("MAIL_DEAD_DAYS", 30, least=1, most=365)
DEFAULT_FROM_EMAIL = text("EMAIL_FROM", "Identity platform <no-reply@localhost>")

# --- logs ------------------------------------------------------------------------------------------------------------

LOG_LEVEL = (text("LOG_LEVEL") or "INFO").upper()
LOGGING_CONFIG = "identity_platform.api.logs.configure"
LOGGING: dict[str, object] = {"level": LOG_LEVEL}

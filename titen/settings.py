"""Settings. Everything that differs between installations comes from the environment.

`manage.py up` writes the file `environment` into the state folder; variables that are already
set win over it.
"""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import environ
from django.utils.csp import CSP

BASE_DIR = Path(__file__).resolve().parent.parent
VAR = Path(os.environ.get("TITEN_VAR") or BASE_DIR / "var").resolve()

# A copy: what the file says is for these settings, not for the processes that are started from here.
environ.Env.ENVIRON = dict(os.environ)
env = environ.Env()
if (VAR / "environment").is_file():
    env.read_env(str(VAR / "environment"))

DEBUG = False
SECRET_KEY = env.str("TITEN_SECRET_KEY", "")
ALLOWED_HOSTS: list[str] = env.list("TITEN_ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("TITEN_TRUSTED_ORIGINS", default=[])
SECURE = env.bool("TITEN_HTTPS", False)
# Seal what is stored encrypted: the first does, all of them open.
SECRET_KEYS: list[str] = [secret.strip() for secret in env.list("TITEN_SECRET_KEYS", default=[])]
# Where agents and recipients reach this server; sequencers name it as their issuer.
PUBLIC_URL = env.str("TITEN_PUBLIC_URL", "http://127.0.0.1:8000").rstrip("/")

INSTALLED_APPS = [
    "coordination",
    "approvals",
    "titen",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "axes",
    "django_htmx",
]

# Requests that carry an API key skip all of it (titen.wsgi).
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "titen.urls"
WSGI_APPLICATION = "titen.wsgi.application"
APPEND_SLASH = False

TEMPLATES: list[dict[str, Any]] = [
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
        },
    },
]

# The application acts as this role, which cannot change or delete events. `migrate` acts as the
# user of the URL, who owns the tables. Empty: the URL's user is such a role already.
DB_ROLE = env.str("TITEN_DB_ROLE", "titen_app")
DATABASE_URL = env.str("DATABASE_URL", "")
# Nobody waits long for somebody else: not for a row's lock, not for a statement, and not for a transaction
# whose process has stopped. The lock's limit is longer than PostgreSQL's search for deadlocks (1 s) waits.
LOCK_TIMEOUT_SECONDS = 1.5
STATEMENT_TIMEOUT_SECONDS = 30
IDLE_TRANSACTION_SECONDS = 60
DATABASES: dict[str, dict[str, Any]] = {}
if DATABASE_URL:
    database = dict(env.db_url_config(DATABASE_URL))
    database["ENGINE"] = "titen.postgres"
    database["CONN_MAX_AGE"] = None
    database["CONN_HEALTH_CHECKS"] = True
    database["OPTIONS"] = {
        # A peer that vanished without a word is noticed within seconds, not by the kernel's two hours.
        "connect_timeout": 5,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
        **database.get("OPTIONS", {}),
        "options": (
            (f"-c role={DB_ROLE} " if DB_ROLE else "")
            + f"-c timezone=UTC -c lock_timeout={LOCK_TIMEOUT_SECONDS * 1000:.0f}"
            f" -c statement_timeout={STATEMENT_TIMEOUT_SECONDS}s"
            f" -c idle_in_transaction_session_timeout={IDLE_TRANSACTION_SECONDS}s"
        ),
    }
    DATABASES["default"] = database

AUTH_USER_MODEL = "coordination.User"
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
# Ten wrong passwords for one address from one place pause it for five minutes.
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=5)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_CLIENT_IP_CALLABLE = "coordination.board.addresses.client_address"
AXES_USERNAME_CALLABLE = "coordination.board.addresses.login_name"
AXES_RESET_ON_SUCCESS = True
AXES_LOCKOUT_CALLABLE = "coordination.board.errors.locked_out"
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False
PASSWORD_HASHERS = ["coordination.passwords.OneAtATimeHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "board"
LOGOUT_REDIRECT_URL = "login"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "coordination.board.errors.csrf_failure"

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = SECURE
SECURE_HSTS_SECONDS = 31_536_000 if SECURE else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = SECURE
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SECURE else None
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CSP = {
    "default-src": [CSP.SELF],
    "img-src": [CSP.SELF, "data:"],
    "frame-ancestors": [CSP.NONE],
    "base-uri": [CSP.NONE],
    "form-action": [CSP.SELF],
    "object-src": [CSP.NONE],
}
X_FRAME_OPTIONS = "DENY"

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
# Whoever reads a time in a page of Django's own must see its zone.
DATETIME_FORMAT = r"Y-m-d H:i:s \U\T\C"

STATIC_URL = "/static/"
STATIC_ROOT = VAR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATA_UPLOAD_MAX_MEMORY_SIZE = 1_048_576

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["titen.api.authentication.KeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["titen.api.authentication.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["titen.api.envelope.EnvelopeRenderer"],
    "DEFAULT_PARSER_CLASSES": ["titen.api.strict_json.StrictJSONParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "titen.api.envelope.JsonOnly",
    "DEFAULT_SCHEMA_CLASS": "titen.api.schema.EnvelopeSchema",
    "EXCEPTION_HANDLER": "titen.api.envelope.answer_exception",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Titen",
    "DESCRIPTION": "Agents share work safely: tasks under expiring, fenced leases, and human approvals.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/v1",
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "POSTPROCESSING_HOOKS": ["titen.api.schema.add_shapes"],
    "SERVERS": [],
}

CELERY_BROKER_URL = env.str("CELERY_BROKER_URL", "")
CELERY_TASK_IGNORE_RESULT = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
# A job that waited longer than its period is of no use: the next one does the same work.
CELERY_BEAT_SCHEDULE = {
    "write down what has run out": {
        "task": "coordination.jobs.sweep",
        "schedule": 5.0,
        "options": {"expires": 5},
    },
    "expire handoffs": {
        "task": "coordination.jobs.expire_handoffs",
        "schedule": 5.0,
        "options": {"expires": 5},
    },
    "expire approvals": {
        "task": "approvals.jobs.expire",
        "schedule": 5.0,
        "options": {"expires": 5},
    },
    "give committed events their positions": {
        "task": "coordination.jobs.number_events",
        "schedule": 5.0,
        "options": {"expires": 5},
    },
    "deliver what webhooks are owed": {
        "task": "coordination.jobs.deliver",
        "schedule": 1.0,
        "options": {"expires": 1},
    },
    "forget what is no longer needed": {
        "task": "coordination.jobs.clean_up",
        "schedule": 3600.0,
        "options": {"expires": 3600},
    },
}

# Leases, in seconds. The minimum is 1 in tests, so that they can wait for an expiry.
LEASE_TTL_MINIMUM = env.int("TITEN_LEASE_TTL_MINIMUM", 10)
LEASE_TTL_MAXIMUM = 86_400
HUMAN_LEASE_TTL_SECONDS = env.int("TITEN_HUMAN_LEASE_TTL", 8 * 3600)
# The share of the TTL without a renewal after which a lease is in jeopardy.
JEOPARDY_SHARE = 2 / 3
# How many waiting requests and streams the hub keeps open; one more is OVERLOADED, with Retry-After.
HUB_LIMIT = env.int("TITEN_HUB_LIMIT", 2_000)
APPROVAL_DEFAULT_SECONDS = 24 * 3600
APPROVAL_MAXIMUM_SECONDS = 30 * 86_400
HANDOFF_DEFAULT_SECONDS = env.int("TITEN_HANDOFF_TTL", 24 * 3600)
HANDOFF_MAXIMUM_SECONDS = 30 * 86_400
# How far ahead a checkpoint may end, and how many of its newest versions the clean-up leaves.
CHECKPOINT_MAXIMUM_SECONDS = 365 * 86_400
CHECKPOINT_VERSIONS_KEPT = env.int("TITEN_CHECKPOINT_VERSIONS_KEPT", 50)
# Whole months of events that are kept besides the current one; 0: all of them, for ever.
EVENTS_KEPT_MONTHS = env.int("TITEN_EVENTS_KEPT_MONTHS", 0)

# Where webhooks may lead beside public addresses: host names, addresses and networks such as 10.1.0.0/16.
WEBHOOK_ALLOWED: list[str] = [
    entry.strip().lower() for entry in env.list("TITEN_WEBHOOK_ALLOWED", default=[]) if entry.strip()
]
# Without TLS anybody on the way reads what is sent; what is listed above may do without it.
WEBHOOK_ALLOW_HTTP = env.bool("TITEN_WEBHOOK_ALLOW_HTTP", False)
# One attempt, from the look-up of the name to the end of the answer.
WEBHOOK_TIMEOUT_SECONDS = env.float("TITEN_WEBHOOK_TIMEOUT", 15.0)
# After the first failure the next attempt comes at random within so many seconds, then within three times
# as many, and so on, up to the maximum: by default a day in all.
WEBHOOK_FIRST_RETRY_SECONDS = env.float("TITEN_WEBHOOK_FIRST_RETRY", 10.0)
WEBHOOK_ATTEMPTS = env.int("TITEN_WEBHOOK_ATTEMPTS", 14)

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "class": "titen.redaction.RedactingFormatter",
            "format": "{asctime} {levelname} {name}: {message}",
            "style": "{",
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        "titen": {"level": "INFO"},
        # A 4xx is an answer, not a fault of the server.
        "django.request": {"level": "ERROR"},
        "django.security": {"level": "CRITICAL"},
    },
}

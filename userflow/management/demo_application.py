"""The sample application of embedded mode: its client and its user in the demo tenant, and the process that serves it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from django.conf import settings
from django.utils.timezone import now

from identity_platform.crypto import hash_token, new_token
from identity_platform.serving import last_start
from identity_platform.serving.workers import exit_with_parent
from tenants.addresses.issuers import issuer_of
from tenants.entering.context import in_tenant
from tenants.models import Tenant
from userflow.accounts.client_fields import CONFIDENTIAL
from userflow.accounts.client_records import CLIENTS, changing_client
from userflow.accounts.models import Client, EndUser
from userflow.clients.actions import SECRET_PREFIX
from userflow.clients.registration import check_metadata
from userflow.credentials import passwords
from userflow.endusers.actions import register_end_user
from userflow.management import demo_exports
from userflow.tenants.actions import generated_password

NAME: Final = "Sample application"
EMAIL: Final = "ann@demo.example.com"
# Not `localhost`: browsers share its cookies between ports, and the platform is at that name.
HOST: Final = "127.0.0.1"
PROGRAM: Final = Path(settings.BASE_DIR) / "examples" / "django-authlib" / "app.py"


def create(tenant: Tenant) -> None:
    """Create the client and the user unless they exist, and store their secrets with the other ones of the demo."""
    default = Client.objects.get(tenant=tenant, is_default=True)
    known = Client.objects.filter(tenant=tenant, name=NAME).first()
    if known is not None:
        # DEMO_PORT may have changed; of a redirect URI every port matches.
        with changing_client(tenant.pk, known.pk) as client:
            client.post_logout_redirect_uris = [address()]
            client.save(update_fields=["post_logout_redirect_uris"])
    else:
        secret = new_token(SECRET_PREFIX)
        client = Client(
            tenant=tenant,
            name=NAME,
            type=CONFIDENTIAL,
            first_party=True,
            redirect_uris=[f"http://{HOST}/callback"],
            post_logout_redirect_uris=[address()],
            secret_digest=hash_token(secret),
        )
        check_metadata(client)
        with CLIENTS.changing(tenant.pk, client.pk):
            client.save(force_insert=True)
        demo_exports.remember(NAME, secret)
    with in_tenant(tenant.pk):
        if not EndUser.objects.filter(email=EMAIL).exists():
            password = generated_password()
            user, _ = register_end_user(
                tenant_id=tenant.pk, client_id=default.pk, email=EMAIL, password=password, name="Ann Demo"
            )
            EndUser.objects.filter(pk=user.pk).update(email_verified_at=now())
            demo_exports.remember(EMAIL, password)


def address() -> str:
    """Return where the application is."""
    return f"http://{HOST}:{last_start.address().demo_port}/"


def invitation() -> Iterator[str]:
    """Yield the line that says where to sign in and as whom, if the sample application is served."""
    tenant = Tenant.objects.filter(slug=demo_exports.SLUG).first()
    if tenant is None or not is_served(tenant):
        return
    password = demo_exports.remembered().get(EMAIL)
    with in_tenant(tenant.pk):
        user = EndUser.objects.filter(email=EMAIL).first()
    if user is not None and password is not None and passwords.matches(password, user.password):
        yield f"Sign in to the sample application: {address()} as {EMAIL} with the password {password}"


def is_served(tenant: Tenant) -> bool:
    """Return whether there is a port, a program and a client with a known secret."""
    known = NAME in demo_exports.remembered() and Client.objects.filter(tenant=tenant, name=NAME, active=True).exists()
    return bool(last_start.address().demo_port) and PROGRAM.exists() and known


def serve(tenant: Tenant) -> int:
    """Run the program until it ends or this process is told to; return its exit code."""
    client = Client.objects.get(tenant=tenant, name=NAME)
    with in_tenant(tenant.pk) as entered:
        issuer = issuer_of(entered)
    demo_settings = {
        "OIDC_ISSUER": issuer,
        "OIDC_CLIENT_ID": str(client.pk),
        "OIDC_CLIENT_SECRET": demo_exports.remembered()[NAME],
        "PORT": str(settings.DEMO_PORT),
    }
    # Nothing else of the platform's environment: it holds keys that an application never has.
    inherited = {name: os.environ[name] for name in ("PATH", "LANG", "HOME", "PYTHONUNBUFFERED") if name in os.environ}
    dies_too = partial(exit_with_parent, os.getpid()) if sys.platform == "linux" else None
    # The program's own settings of Django need a process of their own.
    command = [sys.executable, "-P", str(PROGRAM)]
    with subprocess.Popen(command, env={**inherited, **demo_settings}, preexec_fn=dies_too) as process:  # noqa: S603  # a fixed program
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: process.terminate())
        return process.wait()

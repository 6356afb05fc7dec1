"""One service: its record, its credentials without their secrets, and everything that is done with them.

Every change is an action of the registry. A secret is on one page only, the answer to its revealing.
"""

import json
from typing import Any
from uuid import UUID

from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.frame import labels
from console.frame.access import Staff, needs, staff_at
from console.frame.confirm import confirmed
from console.frame.forms import Reason
from console.frame.lists import uuid_or_none
from console.frame.records import (
    BAD,
    GOOD,
    MIND,
    NOTHING,
    PLAIN,
    Button,
    Cell,
    Record,
    Table,
    moment,
    record_page,
    secret_page,
)
from console.frame.scope import tenant_at
from console.registry.forms import CredentialForm, ExpiryForm, SecretForm, ServiceForm
from registry import actions
from registry.models import ACTIVE, EXPIRED, REVOKED, Service, ServiceCredential
from tenants import lookup
from tenants.states import Purpose
from userflow.sessions.assurance import Action

# More are never on one page: the service of a tenant has a handful, and whoever has more looks them up by the API.
MOST_SHOWN = 200
_TONES = {ACTIVE: GOOD, REVOKED: BAD, EXPIRED: MIND}
_SECRETS = "services:credentials"


def _tenant_id(request: HttpRequest) -> UUID:
    """The chosen tenant's id; UnknownTenant for one that is deleted or still in the making, as at the API."""
    tenant_id = tenant_at(request).pk
    lookup.find(tenant_id).check(Purpose.INSPECT)
    return tenant_id


def _service(request: HttpRequest, service_id: UUID | str) -> Service:
    found = service_id if isinstance(service_id, UUID) else uuid_or_none(service_id)
    tenant_id = _tenant_id(request)
    service = Service.objects.filter(pk=found, tenant_id=tenant_id).first() if found else None
    if service is None:
        raise Http404
    return service


def _credential(service: Service, credential_id: UUID) -> ServiceCredential:
    # Not its secret, which nothing but the revealing reads.
    found = service.credentials.defer("secret").filter(pk=credential_id).first()
    if found is None:
        raise Http404
    return found


def _page_of(service: Service | UUID) -> str:
    return reverse("admin:registry_service_change", args=[service.pk if isinstance(service, Model) else service])


# --- the service -----------------------------------------------------------------------------------------------------


@needs("services:read")
def show(request: HttpRequest, service_id: str) -> HttpResponse:
    """A service with its credentials."""
    staff, service = staff_at(request), _service(request, service_id)
    buttons = []
    if staff.may("services:write"):
        buttons.append(Button(_("Edit"), reverse("admin:service_edit", args=[service.pk])))
    if staff.may("services:delete"):
        buttons.append(Button(_("Delete"), reverse("admin:registry_service_delete", args=[service.pk])))
    facts = (
        (_("Status"), Cell(labels.state(service.status), tone=GOOD if service.status == ACTIVE else PLAIN)),
        (_("Type"), Cell(service.type)),
        (_("Base URL"), Cell(service.base_url, mono=True)),
        (_("API version"), Cell(service.api_version or NOTHING)),
        (_("Description"), Cell(service.description or NOTHING)),
        (_("Metadata"), Cell(json.dumps(service.metadata, ensure_ascii=False) if service.metadata else NOTHING)),
        (_("Id"), Cell(service.pk, mono=True)),
        (_("Registered"), Cell(moment(service.created_at))),
        (_("Changed"), Cell(moment(service.updated_at))),
    )
    return record_page(
        request,
        Record(
            title=service.name,
            facts=facts,
            tables=[_credentials(staff, service)],
            buttons=buttons,
            back=reverse("admin:registry_service_changelist"),
        ),
    )


def _credentials(staff: Staff, service: Service) -> Table:
    found = list(service.credentials.defer("secret").order_by("-created_at", "-id")[: MOST_SHOWN + 1])
    at = now()
    add = Button(_("Add credential"), reverse("admin:credential_add", args=[service.pk]), "primary")
    shown = found[:MOST_SHOWN]
    return Table(
        title=_("Credentials"),
        headers=(_("Name"), _("Type"), _("Status"), _("Expires"), _("Last read"), _("Changed")),
        rows=[
            (
                Cell(row.name),
                Cell(row.type),
                Cell(labels.state(actions.status_of(row, at)), tone=_TONES[actions.status_of(row, at)]),
                Cell(moment(row.expires_at)),
                Cell(moment(row.last_read_at)),
                Cell(moment(row.updated_at)),
            )
            for row in shown
        ],
        actions=[_doings(service, row, at) for row in shown] if staff.may(_SECRETS) else (),
        buttons=[add] if staff.may(_SECRETS) else (),
        note=_("The newest %(most)d are shown.") % {"most": MOST_SHOWN} if len(found) > MOST_SHOWN else "",
        empty=_("No credential is bound to this service yet. Add one, and the tenant's applications can fetch it."),
    )


def _doings(service: Service, credential: ServiceCredential, at: Any) -> list[Button]:
    def button(title: str, name: str) -> Button:
        return Button(title, reverse(f"admin:credential_{name}", args=[service.pk, credential.pk]))

    status = actions.status_of(credential, at)
    return [
        *([button(_("Reveal"), "reveal")] if status == service.status == ACTIVE else []),
        button(_("Rotate"), "rotate"),
        button(_("Activate"), "activate") if status == REVOKED else button(_("Revoke"), "revoke"),
        button(_("Expiry"), "expiry"),
        button(_("Delete"), "delete"),
    ]


@needs("services:write")
def create(request: HttpRequest) -> HttpResponse:
    """Register a service."""
    tenant_id = _tenant_id(request)
    made: dict[str, UUID] = {}

    def act(typed: dict[str, Any]) -> str:
        made["id"] = actions.create_service(tenant_id=tenant_id, **typed).pk
        return _("The service is registered. Bind its first credential now.")

    return confirmed(
        request,
        title=_("Add service"),
        text=_("A service that applications of %(tenant)s call.") % {"tenant": tenant_at(request).name},
        back=reverse("admin:registry_service_changelist"),
        action=None,
        act=act,
        form_class=ServiceForm,
        submit=_("Save"),
        dangerous=False,
        tenant=tenant_at(request),
        onward=lambda: _page_of(made["id"]),
    )


@needs("services:write")
def edit(request: HttpRequest, service_id: UUID) -> HttpResponse:
    """Change a service's record."""
    service = _service(request, service_id)

    def act(typed: dict[str, Any]) -> str:
        changes = {name: value for name, value in typed.items() if value != getattr(service, name)}
        if changes:
            actions.update_service(tenant_id=service.tenant_id, service_id=service.pk, changes=changes)
        return _("The service is saved.")

    return confirmed(
        request,
        title=_("Edit %(name)s") % {"name": service.name},
        text=_("Applications see the change at their next call."),
        back=_page_of(service),
        action=None,
        act=act,
        form_class=ServiceForm,
        form_options={"initial": {name: getattr(service, name) for name in ServiceForm.base_fields}},
        submit=_("Save"),
        dangerous=False,
    )


@needs("services:delete")
def delete(request: HttpRequest, service_id: str) -> HttpResponse:
    """Remove a service; the action rejects while active credentials are bound to it."""
    service = _service(request, service_id)
    bound = service.credentials.count()

    def act(_typed: dict[str, Any]) -> str:
        actions.delete_service(tenant_id=service.tenant_id, service_id=service.pk)
        return _("The service is deleted.")

    return confirmed(
        request,
        title=_("Delete %(name)s") % {"name": service.name},
        text=ngettext(
            "The service and its %(number)d credential are removed for good. Active ones have to be revoked first.",
            "The service and its %(number)d credentials are removed for good. Active ones have to be revoked first.",
            bound,
        )
        % {"number": bound},
        back=_page_of(service),
        action=None,
        act=act,
        onward=lambda: reverse("admin:registry_service_changelist"),
    )


# --- credentials -----------------------------------------------------------------------------------------------------


@needs(_SECRETS)
def add_credential(request: HttpRequest, service_id: UUID) -> HttpResponse:
    """Bind a secret to the service."""
    service = _service(request, service_id)

    def act(typed: dict[str, Any]) -> str:
        actions.create_credential(tenant_id=service.tenant_id, service_id=service.pk, **typed)
        return _("The credential is stored; its secret is sealed.")

    return confirmed(
        request,
        title=_("Add credential to %(name)s") % {"name": service.name},
        text=_("Applications with the permission services:credentials can fetch it from now on."),
        back=_page_of(service),
        action=None,
        act=act,
        form_class=CredentialForm,
        submit=_("Save"),
        dangerous=False,
    )


def _change(
    request: HttpRequest,
    service_id: UUID,
    credential_id: UUID,
    *,
    title: str,
    text: str,
    done: str,
    changes: Any,
    **how: Any,
) -> HttpResponse:
    """Ask, then change a credential; `title` takes its name, `changes` makes the changes of what was typed."""
    service = _service(request, service_id)
    credential = _credential(service, credential_id)
    initial = how.pop("initial", None)

    def act(typed: dict[str, Any]) -> str:
        actions.update_credential(
            tenant_id=service.tenant_id, service_id=service.pk, credential_id=credential.pk, changes=changes(typed)
        )
        return done

    return confirmed(
        request,
        title=title % {"name": credential.name},
        text=text,
        back=_page_of(service),
        action=None,
        act=act,
        form_options={"initial": initial(credential)} if initial else None,
        **how,
    )


@needs(_SECRETS)
def rotate(request: HttpRequest, service_id: UUID, credential_id: UUID) -> HttpResponse:
    """Put a new secret in the place of the old one."""
    return _change(
        request,
        service_id,
        credential_id,
        title=_("Rotate %(name)s"),
        text=_("The new secret is handed out from the next call on; the one before is gone."),
        done=_("The credential is rotated."),
        changes=lambda typed: {"secret": typed["secret"]},
        form_class=SecretForm,
        submit=_("Rotate"),
    )


@needs(_SECRETS)
def revoke(request: HttpRequest, service_id: UUID, credential_id: UUID) -> HttpResponse:
    """Hand a credential out no more."""
    return _change(
        request,
        service_id,
        credential_id,
        title=_("Revoke %(name)s"),
        text=_(
            "Applications do not get this credential any more from their next call on. It can be switched on again."
        ),
        done=_("The credential is revoked."),
        changes=lambda _typed: {"status": REVOKED},
    )


@needs(_SECRETS)
def activate(request: HttpRequest, service_id: UUID, credential_id: UUID) -> HttpResponse:
    """Hand a revoked credential out again."""
    return _change(
        request,
        service_id,
        credential_id,
        title=_("Activate %(name)s"),
        text=_("Applications get this credential again. If it was revoked because it leaked, rotate it first."),
        done=_("The credential is active."),
        changes=lambda _typed: {"status": ACTIVE},
    )


@needs(_SECRETS)
def expiry(request: HttpRequest, service_id: UUID, credential_id: UUID) -> HttpResponse:
    """Set until when a credential is handed out."""
    return _change(
        request,
        service_id,
        credential_id,
        title=_("Expiry of %(name)s"),
        text=_("After this time applications do not get the credential any more."),
        done=_("The expiry is set."),
        changes=lambda typed: {"expires_at": typed["expires_at"]},
        form_class=ExpiryForm,
        initial=lambda credential: {"expires_at": credential.expires_at},
        submit=_("Save"),
        dangerous=False,
    )


@needs(_SECRETS)
def delete_credential(request: HttpRequest, service_id: UUID, credential_id: UUID) -> HttpResponse:
    """Remove a credential with its secret."""
    service = _service(request, service_id)
    credential = _credential(service, credential_id)

    def act(_typed: dict[str, Any]) -> str:
        actions.delete_credential(tenant_id=service.tenant_id, service_id=service.pk, credential_id=credential.pk)
        return _("The credential is deleted.")

    return confirmed(
        request,
        title=_("Delete %(name)s") % {"name": credential.name},
        text=_("The credential and its secret are removed for good; applications do not get it any more."),
        back=_page_of(service),
        action=None,
        act=act,
    )


@needs(_SECRETS)
def reveal(request: HttpRequest, service_id: UUID, credential_id: UUID) -> HttpResponse:
    """Show a secret once, to somebody who has just signed in and says why; audited with the reason."""
    service = _service(request, service_id)
    credential = _credential(service, credential_id)
    found: dict[str, Any] = {}

    def act(typed: dict[str, Any]) -> str:
        _read, found["secret"] = actions.reveal_credential(
            tenant_id=service.tenant_id,
            service_id=service.pk,
            credential_id=credential.pk,
            reason=typed["reason"],
            by=staff_at(request).principal,
        )
        return _("The secret is shown on this page only, and the audit trail says who has seen it and why.")

    def shown(_request: HttpRequest) -> HttpResponse:
        secret = found["secret"]
        text = secret if isinstance(secret, str) else json.dumps(secret, indent=2, ensure_ascii=False)
        return secret_page(request, of=credential.name, secret=text, back=_page_of(service))

    return confirmed(
        request,
        title=_("Reveal %(name)s") % {"name": credential.name},
        text=_("The secret is shown once. Say what it is needed for: your reason is kept in the audit trail."),
        back=_page_of(service),
        action=Action.REVEAL_SECRET,
        act=act,
        form_class=Reason,
        submit=_("Reveal"),
        shown=shown,
    )

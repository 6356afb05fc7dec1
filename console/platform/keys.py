"""Signing keys of the platform and of the chosen tenant, and encryption keys. No page shows key material."""

from datetime import datetime

from django.core.exceptions import PermissionDenied
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.frame import labels
from console.frame.access import Context, needed, needs, staff_at
from console.frame.confirm import ConfirmView, TenantConfirmView
from console.frame.records import Button, Cell, Table, Text, Tone, buttons_to, moment, mono, record_page
from console.frame.tenant_pages import tenant_page
from console.platform.forms import AtOnceForm
from console.tenants.pages import may_look
from identity_platform.crypto import key_ring
from tenants import keys
from tenants.models import Tenant
from userflow.sessions import signing
from userflow.sessions.assurance import Action

_TONES = {"signing": Tone.GOOD, "next": Tone.PLAIN, "verifying": Tone.WARNING}


@needs("tenants:read", operators_only=True)
def signing_keys(request: HttpRequest) -> HttpResponse:
    """The valid keys that sign tokens of operators and tenant admins."""
    return _signing_keys_page(request, signing.signing_key_status(), "signing_key")


@tenant_page()
def tenant_signing_keys(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """The valid keys that sign the tokens of the chosen tenant. Tenant admins see them as they see their tenant."""
    if not may_look(staff_at(request)):
        raise PermissionDenied(needed("tenants:read"))
    return _signing_keys_page(request, signing.signing_key_status(tenant.pk), "tenant_signing_key")


def _signing_keys_page(request: HttpRequest, key_statuses: list[signing.KeyStatus], pages: str) -> HttpResponse:
    staff = staff_at(request)
    may = staff.is_operator and staff.may("tenants:write")
    rotate = Button(_("Rotate"), reverse(f"admin:{pages}s_rotate"), "primary")
    table = Table(
        title=_("Valid keys"),
        headers=(
            _("Key id"),
            _("Algorithm"),
            _("State"),
            _("Published"),
            _("Signs from"),
            _("Age"),
            _("Verifies until"),
        ),
        rows=[
            (
                mono(key.kid),
                key.algorithm,
                Cell(labels.state(key.state), tone=_TONES[key.state]),
                key.created_at,
                key.signs_from,
                _age(key.signs_from),
                key.verifies_until,
            )
            for key in key_statuses
        ],
        actions=[buttons_to(pages, key.kid, withdraw=_("Withdraw")) for key in key_statuses] if may else (),
        buttons=[rotate] if may else (),
        empty=_("No key is valid at the moment. The next issued token creates one."),
    )
    text = _(
        "One key of each algorithm signs. Earlier keys verify until their last tokens have expired. A rotation signs no one "
        "out."
    )
    return record_page(request, _("Signing keys"), text=text, tables=[table])


def _age(since: datetime) -> str:
    days = max((now() - since).days, 0)
    return ngettext("%(days)d day", "%(days)d days", days) % {"days": days}


class SigningKeyView(ConfirmView):
    """A page that changes keys of the platform, or of the tenant of the page."""

    permissions = ("tenants:write",)
    operators_only = True
    action = Action.ROTATE_KEYS
    list_page = "admin:signing_keys"


class Rotate(SigningKeyView):
    title = _("Rotate the signing keys")
    text = _("A new key is published now and signs in ten minutes. No one is signed out.")
    submit = _("Rotate")
    form_class = AtOnceForm
    call = staticmethod(signing.rotate_signing_keys)

    def act(self, form: Form) -> Text:
        made = self.call(**self.arguments(), **form.cleaned_data)
        names = {"kid": ", ".join(key.kid for key in made), "moment": moment(made[0].signs_from)}
        return (
            ngettext(
                "The key %(kid)s signs from %(moment)s on.", "The keys %(kid)s sign from %(moment)s on.", len(made)
            )
            % names
        )


class Withdraw(SigningKeyView):
    title = _("Withdraw a signing key")
    text = _(
        "Do this if the private half of %(kid)s has leaked. Within seconds its tokens are rejected everywhere, and "
        "everyone who holds one must sign in again."
    )
    submit = _("Withdraw")

    def load(self) -> None:
        super().load()
        valid = signing.signing_key_status(self.tenant.pk if self.tenant else None)
        if self.kwargs["kid"] not in {key.kid for key in valid}:
            raise Http404

    def names(self) -> Context:
        return {**super().names(), "kid": self.kwargs["kid"]}

    def act(self, form: Form) -> Text:
        if not signing.withdraw_signing_key(**self.arguments(), kid=self.kwargs["kid"]):
            raise Http404
        return _("The key %(kid)s is withdrawn.") % self.names()


class RotateOfTenant(Rotate, TenantConfirmView):
    title = _("Rotate the signing keys of %(tenant)s")
    text = _("A new key for each algorithm in use is published now and signs in ten minutes. No one is signed out.")
    list_page = "admin:tenant_signing_keys"


class WithdrawOfTenant(Withdraw, TenantConfirmView):
    title = _("Withdraw a signing key of %(tenant)s")
    list_page = "admin:tenant_signing_keys"


@needs("tenants:read", operators_only=True)
def encryption_keys(request: HttpRequest) -> HttpResponse:
    """The keys of ENCRYPTION_KEYS, how many data keys each wraps, and the next step of a rotation."""
    ring, counted = key_ring(), keys.under_each_ring_key()
    names = list(dict.fromkeys([*ring.ids, *counted]))
    table = Table(
        title=_("Keys of the key ring"),
        headers=(_("Key id"), _("State"), _("Data keys")),
        rows=[(mono(name), _state(name), counted.get(name, 0)) for name in names],
        empty=_("The key ring is empty."),
    )
    missing = [name for name in counted if name not in ring.ids]
    warning = _(
        "Data keys are wrapped under %(names)s, which ENCRYPTION_KEYS does not hold: their secrets do not open. Put that "
        "key back behind the first one."
    ) % {"names": ", ".join(missing)}
    waiting = sum(number for name, number in counted.items() if name != ring.primary_id)
    return record_page(
        request,
        _("Encryption keys"),
        text=_next_step(waiting, counted),
        warning=warning if missing else "",
        tables=[table],
    )


def _state(name: str) -> Cell:
    ring = key_ring()
    if name not in ring.ids:
        return Cell(_("missing"), tone=Tone.BAD)
    return (
        Cell(_("encrypts"), tone=Tone.GOOD) if name == ring.primary_id else Cell(_("decrypts only"), tone=Tone.WARNING)
    )


def _next_step(waiting: int, counted: dict[str, int]) -> Text:
    ring = key_ring()
    if waiting:
        return ngettext(
            "rotate_encryption_keys would wrap %(number)d data key under %(first)s.",
            "rotate_encryption_keys would wrap %(number)d data keys under %(first)s.",
            waiting,
        ) % {"number": waiting, "first": ring.primary_id}
    idle = [name for name in ring.ids[1:] if name not in counted]
    if idle:
        return _(
            "Nothing needs %(names)s any more. Remove it from ENCRYPTION_KEYS once every process has %(first)s in front, "
            "and keep it with backups that are older than the rotation."
        ) % {"names": ", ".join(idle), "first": ring.primary_id}
    return _(
        "Every data key is under %(first)s. To rotate, put a new key in front of ENCRYPTION_KEYS "
        "(rotate_encryption_keys --new-key creates one) and run rotate_encryption_keys."
    ) % {"first": ring.primary_id}

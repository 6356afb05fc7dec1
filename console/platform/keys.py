"""The platform's signing keys and encryption keys. No page shows key material."""

from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.frame import labels
from console.frame.access import Context, needs, staff_at
from console.frame.confirm import ConfirmView
from console.frame.records import Button, Cell, Table, Text, Tone, buttons_to, moment, mono, record_page
from console.platform.forms import AtOnceForm
from identity_platform.crypto import key_ring
from tenants import keys
from userflow.sessions import signing
from userflow.sessions.assurance import Action

_TONES = {"signing": Tone.GOOD, "next": Tone.PLAIN, "verifying": Tone.WARNING}


@needs("tenants:read", operators_only=True)
def signing_keys(request: HttpRequest) -> HttpResponse:
    """The valid keys of access and refresh tokens."""
    found = signing.signing_key_status()
    may = staff_at(request).may("tenants:write")
    rotate = Button(_("Rotate"), reverse("admin:signing_keys_rotate"), "primary")
    table = Table(
        title=_("Valid keys"),
        headers=(_("Key id"), _("State"), _("Signs from"), _("Age"), _("Verifies until")),
        rows=[
            (
                mono(key.kid),
                Cell(labels.state(key.state), tone=_TONES[key.state]),
                key.signs_from,
                _days((now() - key.signs_from).days),
                key.verifies_until,
            )
            for key in found
        ],
        actions=[buttons_to("signing_key", key.kid, withdraw=_("Withdraw")) for key in found] if may else (),
        buttons=[rotate] if may else (),
        empty=_("No key is valid at the moment. The next issued token creates one."),
    )
    text = _("One key signs. Earlier keys verify until their last tokens have expired. A rotation signs no one out.")
    return record_page(request, _("Signing keys"), text=text, tables=[table])


def _days(days: int) -> str:
    return ngettext("%(days)d day", "%(days)d days", max(days, 0)) % {"days": max(days, 0)}


class SigningKeyView(ConfirmView):
    permissions = ("tenants:write",)
    operators_only = True
    action = Action.ROTATE_KEYS
    list_page = "admin:signing_keys"


class Rotate(SigningKeyView):
    title = _("Rotate the signing keys")
    text = _("A new key is published now and signs in ten minutes. No one is signed out.")
    submit = _("Rotate")
    form_class = AtOnceForm

    def act(self, form: Form) -> Text:
        [key] = signing.rotate_signing_keys(at_once=form.cleaned_data["at_once"], by=self.staff.principal)
        return _("The key %(kid)s signs from %(moment)s on.") % {"kid": key.kid, "moment": moment(key.signs_from)}


class Withdraw(SigningKeyView):
    title = _("Withdraw a signing key")
    text = _(
        "Do this if the private half of %(kid)s has leaked. Within seconds its tokens are rejected everywhere, and "
        "everyone who holds one must sign in again."
    )
    submit = _("Withdraw")

    def load(self) -> None:
        if self.kwargs["kid"] not in {key.kid for key in signing.signing_key_status()}:
            raise Http404

    def names(self) -> Context:
        return {"kid": self.kwargs["kid"]}

    def act(self, form: Form) -> Text:
        if not signing.withdraw_signing_key(kid=self.kwargs["kid"], by=self.staff.principal):
            raise Http404
        return _("The key %(kid)s is withdrawn.") % self.names()


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

"""Domains of the chosen tenant and the TXT records that verify them."""

from functools import partial
from typing import Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context, Staff, needs, staff_at
from console.frame.confirm import ChosenTenantConfirmView, CreateView, DeleteView, RowView
from console.frame.records import Button, Cell, Table, Text, Tone, buttons_to, mono, record_page, with_encoded_form
from console.frame.scope import tenant_at
from console.frame.tenant_pages import reading_purpose
from console.platform.forms import DisablePasskeysForm, DomainForm, DomainSearch
from identity_platform.api.email_addresses import search_key, shown_domain
from mfa.webauthn.relying_party import passkeys_of_domain
from tenants.entering import lookup
from userflow.domains import actions
from userflow.domains.actions import LOST, PENDING, TAKEN, VERIFIED, Domain
from userflow.domains.models import TenantDomain
from userflow.domains.records import record_name, record_value
from userflow.sessions.assurance import Action

LIST: Final = "admin:domains"
PAGE: Final = "admin:domain"
_STATES: Final[dict[str, tuple[Text, Tone]]] = {
    PENDING: (_("not verified"), Tone.PLAIN),
    VERIFIED: (_("verified"), Tone.GOOD),
    LOST: (_("record lost"), Tone.WARNING),
    TAKEN: (_("of another tenant"), Tone.BAD),
}


def _find(request: HttpRequest, domain_id: UUID) -> Domain:
    return actions.find_domain(tenant_id=tenant_at(request).pk, domain_id=domain_id, purpose=reading_purpose(request))


def _state(domain: Domain) -> Cell:
    text, tone = _STATES[domain.status]
    return Cell(text, tone=tone)


@needs("domains:read")
def listed(request: HttpRequest) -> HttpResponse:
    staff, tenant = staff_at(request), tenant_at(request)
    search = DomainSearch(request.GET)
    search.is_valid()
    words = search_key(search.cleaned_data.get("q", ""))
    stored = actions.list_domains(tenant_id=tenant.pk, purpose=reading_purpose(request))
    domains = [domain for domain in stored if words in domain.domain]
    table = Table(
        title=_("Domains"),
        headers=(_("Domain"), _("State"), _("Sign-in domain"), _("Last checked"), _("Withdrawn after")),
        rows=[
            (
                Cell(with_encoded_form(each.domain), link=reverse(PAGE, args=[each.pk])),
                _state(each),
                each.sign_in,
                each.checked_at,
                each.withdrawn_after,
            )
            for each in domains
        ],
        buttons=[Button(_("Add domain"), reverse("admin:domain_add"), "primary")] if staff.may("domains:write") else (),
        empty=_("No domain contains this.") if stored else _("No domain yet. Add one and verify it by a DNS record."),
    )
    template = "console/platform/domains.html"
    return record_page(request, _("Domains"), tables=[table], search=search if stored else None, template=template)


@needs("domains:read")
def show(request: HttpRequest, domain_id: UUID) -> HttpResponse:
    """One domain with the record to set in DNS."""
    domain = _find(request, domain_id)
    facts = (
        (_("State"), _state(domain)),
        (_("Domain"), with_encoded_form(domain.domain)),
        (_("Sign-in domain"), domain.sign_in),
        (_("TXT record: name"), mono(record_name(domain.domain))),
        (_("TXT record: value"), mono(record_value(domain.row.token))),
        (_("Verified"), domain.claim.claimed_at if domain.claim else None),
        (_("Last checked"), domain.checked_at),
        (_("Record lost since"), domain.lost_since),
        (_("Withdrawn after"), domain.withdrawn_after),
        (_("Created"), domain.row.created_at),
        (_("Id"), mono(domain.pk)),
    )
    buttons = _buttons(staff_at(request), domain)
    return record_page(
        request,
        shown_domain(domain.domain),
        facts=facts,
        buttons=buttons_to("domain", domain.pk, **buttons),
        back=reverse(LIST),
    )


def _buttons(staff: Staff, domain: Domain) -> dict[str, Text]:
    if not staff.may("domains:write"):
        return {}
    titles: dict[str, Text] = {"verify": _("Verify")}
    if domain.sign_in:
        titles["stop_sign_in"] = _("Stop using for sign-in")
    elif domain.claim is not None:
        titles["sign_in"] = _("Use for sign-in")
    return {**titles, "delete": _("Delete")}


class DomainView(ChosenTenantConfirmView):
    permissions = ("domains:write",)
    page = PAGE
    list_page = LIST
    named_by = "domain"
    action = Action.CHANGE_TENANT_SETTINGS


class DomainConfirmView(RowView[TenantDomain], DomainView):
    key = "domain_id"

    def find(self) -> TenantDomain:
        return _find(self.request, self.kwargs["domain_id"]).row


class AddDomain(CreateView[TenantDomain], DomainView):
    title = _("Add domain")
    text = _("The next page shows the TXT record to set in DNS.")
    form_class = DomainForm
    call = staticmethod(actions.add_domain)
    done = _("The domain is added. Set its TXT record, then verify it.")


class VerifyDomain(DomainConfirmView):
    title = _("Verify %(name)s")
    text = _("The TXT record is looked up now, and daily from then on: keep it.")
    submit = _("Verify")
    dangerous = False
    call = staticmethod(actions.verify_domain)
    done = _("The domain is verified.")


class UseForSignIn(DomainConfirmView):
    title = _("Use %(name)s for sign-in")
    text = _(
        "The issuer, the endpoints and the pages of %(tenant)s move there at once. Applications need the new issuer, and "
        "access tokens of the old one end. The host must lead to this platform, with a certificate."
    )
    submit = _("Use for sign-in")
    form_class = DisablePasskeysForm
    call = staticmethod(partial(actions.update_domain, sign_in=True))
    done = _("%(name)s is the sign-in domain.")


class StopSignIn(DomainConfirmView):
    title = _("Stop using %(name)s for sign-in")
    text = _(
        "The issuer, the endpoints and the pages of %(tenant)s return to the platform's address at once. Applications need the "
        "new issuer, and access tokens of the old one end."
    )
    submit = _("Stop using for sign-in")
    form_class = DisablePasskeysForm
    call = staticmethod(partial(actions.update_domain, sign_in=False))
    done = _("%(name)s is not the sign-in domain any more.")


class DeleteDomain(DeleteView[TenantDomain], DomainConfirmView):
    title = _("Delete %(name)s")
    text = _(
        "Another tenant can verify the domain from now on. Links in mails that lead there stop working. %(passkeys)s"
    )
    submit = _("Delete")
    call = staticmethod(actions.delete_domain)
    done = _("The domain is deleted.")

    def names(self) -> Context:
        is_in_use = lookup.find(self.tenant.pk).sign_in_domain == self.row.domain
        return {**super().names(), "passkeys": passkeys_of_domain(self.tenant.pk) if is_in_use else ""}

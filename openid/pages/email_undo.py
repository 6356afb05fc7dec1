"""The page that undoes a change of e-mail address, for the link in the mail to the former address.

It is on the platform's own host, also for tenants with a sign-in domain: who has taken over a domain must not stop it.
"""

from dataclasses import replace

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from openid.pages import forms
from openid.pages.page import FormPage
from tenants.entering import lookup
from tenants.entering.lookup import TenantContext
from userflow.branding.brand import Brand
from userflow.email.undo import undo_email_change
from userflow.errors import EmailUndoInvalid
from userflow.mailed_tokens import is_of_tenant


class EmailUndoPage(FormPage):
    """Restore the address that the mail was sent to. The script takes the token of the link from the page's address."""

    template = "email_undo"
    title = _("Keep your e-mail address")
    form_class = forms.VerifyLinkForm
    focuses = False

    def find_tenant(self, request: HttpRequest) -> TenantContext:
        """Return the tenant of the slug, also one with a sign-in domain. Raises UnknownTenant."""
        match = request.resolver_match
        return lookup.find_by_slug(match.kwargs["slug"] if match else "")

    @property
    def root(self) -> str:
        return f"/t/{self.tenant.slug}"

    @property
    def ui_locales(self) -> tuple[str, ...]:
        """Return the language of the mail."""
        return tuple(self.request.GET.get("ui_locales", "").split())

    def submit(self, form: forms.PageForm) -> HttpResponse:
        """Restore the address; every session of the user ends."""
        token = form.cleaned_data["token"]
        if not is_of_tenant(token, self.tenant.tenant_id):
            raise EmailUndoInvalid
        user = undo_email_change(token=token)
        context = {"email": user.email, "forgot": f"{self.tenant.root}/forgot"}
        return self.page("email_undone", _("Your e-mail address is restored"), context)

    def _frame(self, title: str) -> dict[str, object]:
        frame = super()._frame(title)
        brand = frame["brand"]
        if isinstance(brand, Brand) and self.tenant.sign_in_domain:
            # The logo is on that domain.
            frame["brand"] = replace(brand, logo="")
        return frame

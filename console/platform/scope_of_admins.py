"""Whether a page adds an admin user to the open tenant, or an operator to the platform."""

from typing import ClassVar, Final

from django.core.exceptions import PermissionDenied
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.frame.access import Context
from console.frame.confirm import ConfirmView
from console.frame.records import Text
from console.frame.scope import act_on, chosen_tenant
from identity_platform.api.views import Arguments
from tenants.models import Tenant
from tenants.states import State

SCOPE: Final = "scope"
PLATFORM: Final = "platform"


class ScopedView(ConfirmView):
    """A page that adds an admin user of the open tenant, which bar, title and button name.

    An operator, who decides over all tenants, is a choice of its own (`?scope=platform`, or no tenant is open), and what it
    gives must be typed. A form that was rendered for a tenant, and is sent when none is open, lacks that text.
    """

    template_name = "console/platform/new_admin.html"
    title_of_operator: ClassVar[Text]

    def load(self) -> None:
        by_choice = self.request.GET.get(SCOPE) == PLATFORM
        if by_choice and not self.staff.is_operator:
            raise PermissionDenied(_("This page is for operators."))
        self.tenant = None if by_choice else chosen_tenant(self.request)
        if self.tenant is not None:
            act_on(self.request, self.tenant)
        else:
            self.title, self.dangerous = self.title_of_operator, True
            self.text = _("An operator can open and change every tenant.")

    def arguments(self) -> Arguments:
        return {"tenant_id": None, **super().arguments()}

    def get_form_kwargs(self) -> Context:
        return {
            **super().get_form_kwargs(),
            "staff": self.staff,
            "tenant": self.tenant,
            "confirmation_text": _confirmation_text(),
        }

    def get_context_data(self, **kwargs: object) -> Context:
        other = f"?{SCOPE}={PLATFORM}" if self.tenant is not None and self.staff.is_operator else ""
        return {**super().get_context_data(**kwargs), "other": other, "title_of_operator": self.title_of_operator}


def _confirmation_text() -> str:
    """Return the text that must be typed to make an operator."""
    number = Tenant.objects.exclude(database__status=State.DELETED).count()
    text = ngettext("operator of %(number)d tenant", "operator of all %(number)d tenants", number)
    return text % {"number": number}

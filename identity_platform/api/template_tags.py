"""Tags and filters that every template can use without loading them (TEMPLATES in the settings)."""

from django import template

from identity_platform.api.email_addresses import shown_address
from identity_platform.installation import MANAGE

register = template.Library()
# An e-mail address or a domain in Unicode.
register.filter(shown_address)


@register.simple_tag
def manage_command() -> str:
    """Return what the management commands are called here: `bin/manage`, or `identity manage` in an installed package."""
    return MANAGE

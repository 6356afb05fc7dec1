"""Times on the hosted pages: in UTC, and for the script, which shows them in the time zone of the browser."""

from datetime import UTC, datetime

from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString

_MACHINE_READABLE = "%Y-%m-%dT%H:%M:%SZ"


def local_time(moment: datetime) -> SafeString:
    """Return a time as HTML. Without the script it is read in UTC, named as such."""
    moment = moment.astimezone(UTC)
    return format_html(
        '<time datetime="{}">{}</time>', f"{moment:{_MACHINE_READABLE}}", date_format(moment, "DATETIME_FORMAT")
    )


def local_day(moment: datetime) -> SafeString:
    """Return the day of a time as HTML. Without the script it is the day in UTC."""
    moment = moment.astimezone(UTC)
    return format_html(
        '<time datetime="{}" data-day>{}</time>', f"{moment:{_MACHINE_READABLE}}", date_format(moment, "DATE_FORMAT")
    )

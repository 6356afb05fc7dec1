"""E-mail addresses and domains on the pages of the console."""

from django import template

from console.frame.records import with_encoded_form

register = template.Library()
register.filter(with_encoded_form)

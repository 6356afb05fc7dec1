"""Filters for times in the templates of the hosted pages."""

from django import template

from openid.pages.times import local_day, local_time

register = template.Library()
register.filter(local_time)
register.filter(local_day)

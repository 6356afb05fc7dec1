"""The operators' console: Django's admin site with the platform's own sign-in, permissions and actions.

It sits above every app and none imports it. Lists are model admins of Django's admin that only read; everything that
changes something is a page of its own that calls the action the API and the commands call too.
"""

"""The operators' console: Django's admin site with the platform's own sign-in, permissions and actions.

No app imports it. Lists are read-only model admins of Django's admin. Every change is a page of its own that calls the same
action as the API and the commands.
"""

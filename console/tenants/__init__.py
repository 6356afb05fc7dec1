"""Tenants in the console: the list, the page of one, and what can be done to it."""

"""Copies of the tenant and its clients in the tenant's own database, written with each change of the global rows."""

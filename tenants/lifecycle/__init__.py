"""The life of a tenant: creation, changes of state, deletion, and what expires."""

"""Pages inside a tenant: its end users, groups, roles, sessions, invitations and audit log."""

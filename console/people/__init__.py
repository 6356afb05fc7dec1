"""Inside a tenant: its people, groups, roles, sessions, invitations and audit trail."""

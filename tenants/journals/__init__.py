"""What is recorded of tenants: audit trails, and the journal of revocations."""

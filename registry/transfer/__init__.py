"""A tenant's services in and out, by command."""

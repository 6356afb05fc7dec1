"""What happens to every request: fences, operating modes, and audit events of rejected ones."""

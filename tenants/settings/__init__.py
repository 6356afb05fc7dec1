"""What a tenant can set: declarations, values that apply, and their validation."""

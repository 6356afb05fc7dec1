"""Who gets in: password and second factor, proving it again, and one's own passkeys, codes, password and sessions."""

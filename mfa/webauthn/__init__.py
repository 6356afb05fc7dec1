"""Passkeys: WebAuthn Level 3 ceremonies for admin users and end users."""

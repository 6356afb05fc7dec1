"""Sign-in with password and second factor, re-authentication, and the own factors, password and sessions."""

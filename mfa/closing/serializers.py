"""Request body of closing an account."""

from userflow.signin.proof_fields import ProofFields


class AccountClosingIn(ProofFields):
    """One of the fields; the first that is present counts."""

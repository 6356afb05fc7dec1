"""Shapes of closing an account."""

from userflow.proof_fields import NeedsProof


class AccountClosingIn(NeedsProof):
    """One of the fields; the first that is present counts."""

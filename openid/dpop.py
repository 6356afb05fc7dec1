"""Proofs of possession of a key (RFC 9449) at the endpoints of a tenant's issuer; `userflow.sessions.dpop` checks them."""

from userflow.sessions.dpop import check_bound_token, check_proof

__all__ = ["check_bound_token", "check_proof"]

"""The action table: what a session must have verified before a sensitive action, at every entry point.

The API, the console, hosted pages and step-up all call `require_assurance`, and `docs/security-model.md` shows this table.
`userflow.accounts.rank.require_reach` decides whether the caller may decide about the object of the action; the two of them
decide authority.
Sources: NIST SP 800-63B-4 section 2, RFC 9470, OWASP ASVS 5.0 chapters 6 and 7.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from identity_platform.api.errors import NotAllowed
from userflow.accounts.principals import CLIENT, Principal
from userflow.accounts.session_policy import AAL2
from userflow.errors import InsufficientAuthentication


class Action(StrEnum):
    """An action that needs more than a valid session."""

    FIRST_FACTOR = "factor.first"
    ADD_FACTOR = "factor.add"
    RENEW_BACKUP_CODES = "factor.backup_codes"
    REMOVE_FACTOR = "factor.remove"
    REPLACE_FACTOR = "factor.replace"
    CHANGE_OWN_EMAIL = "profile.email"
    CHANGE_OWN_PASSWORD = "profile.password"
    CLOSE_ACCOUNT = "profile.delete"
    RESET_FACTORS = "user.reset_factors"
    ISSUE_ENROLLMENT_PASS = "user.enrollment_pass"
    CHANGE_EMAIL_OF_OTHERS = "user.email"
    END_SESSIONS_OF_OTHERS = "user.end_sessions"
    EXPORT_PASSWORD_HASHES = "user.export_hashes"
    WRITE_CLIENT_SECRET = "client.secret"
    GRANT_ROLES = "role.grant"
    CHANGE_TENANT_SETTINGS = "tenant.settings"
    CHANGE_CONNECTIONS = "tenant.connections"
    CHANGE_TENANT_STATE = "tenant.state"
    ROTATE_KEYS = "keys.rotate"
    REVEAL_SECRET = "secret.reveal"


@dataclass(frozen=True, slots=True)
class Requirement:
    """What an action needs besides its permission.

    Every action needs a verification of the user in the last 15 minutes, with the second factor of a user who has one.
    """

    summary: str
    # The request itself carries a proof: a factor code, a passkey or a `proof_token`; of a user without a factor the password.
    needs_proof: bool = False
    # Clients may do it with their scope: they have no second factor, and their tokens are short-lived.
    clients: bool = True
    # The caller must hold what the user, client, role, setting or connection can act as (`accounts.rank.require_reach`).
    rank: bool = False


REQUIREMENTS: Final[Mapping[Action, Requirement]] = MappingProxyType(
    {
        # The enrollment ticket of the sign-in stands for the proof.
        Action.FIRST_FACTOR: Requirement("Enroll the first factor", needs_proof=True, clients=False),
        Action.ADD_FACTOR: Requirement("Add a factor", needs_proof=True, clients=False),
        Action.RENEW_BACKUP_CODES: Requirement("Create new backup codes", needs_proof=True, clients=False),
        Action.REMOVE_FACTOR: Requirement("Remove a factor", needs_proof=True, clients=False),
        Action.REPLACE_FACTOR: Requirement("Replace a factor", needs_proof=True, clients=False),
        Action.CHANGE_OWN_EMAIL: Requirement("Change one's own e-mail address", needs_proof=True, clients=False),
        Action.CHANGE_OWN_PASSWORD: Requirement("Change one's own password", needs_proof=True, clients=False),
        Action.CLOSE_ACCOUNT: Requirement("Delete one's own account", needs_proof=True, clients=False),
        Action.RESET_FACTORS: Requirement(
            "Reset another user's factors, or the failed attempts of an end user", clients=False, rank=True
        ),
        Action.ISSUE_ENROLLMENT_PASS: Requirement("Issue an enrollment pass", clients=False, rank=True),
        # Passwords of others have no row: no entry point sets one, they are reset by a link to the user.
        Action.CHANGE_EMAIL_OF_OTHERS: Requirement(
            "Change another user's e-mail address, or mark it as verified", rank=True
        ),
        Action.END_SESSIONS_OF_OTHERS: Requirement(
            "End another user's sessions: sign out, deactivate or erase the user, deactivate or delete the client, "
            "make it first-party no longer",
            rank=True,
        ),
        Action.EXPORT_PASSWORD_HASHES: Requirement("Export password hashes", clients=False),
        Action.WRITE_CLIENT_SECRET: Requirement(
            "Create or rotate a client secret; change a client's keys, add redirect URIs, audiences, origins or the "
            "device grant, stop requiring PAR or DPoP, make it first-party, or change what a first-party client can receive",
            rank=True,
        ),
        Action.GRANT_ROLES: Requirement("Grant roles, group memberships that carry roles, or client scopes", rank=True),
        Action.CHANGE_TENANT_SETTINGS: Requirement("Change tenant settings and domains", clients=False, rank=True),
        Action.CHANGE_CONNECTIONS: Requirement(
            "Change directories and webhook endpoints, and their secrets", rank=True
        ),
        Action.CHANGE_TENANT_STATE: Requirement(
            "Delete, suspend, resume, move or restore a tenant; start or end a read-only or maintenance mode",
            clients=False,
        ),
        Action.ROTATE_KEYS: Requirement("Rotate signing or encryption keys", clients=False),
        Action.REVEAL_SECRET: Requirement("Reveal a secret in the console", clients=False),
    }
)


def require_assurance(action: Action, principal: Principal | None) -> None:
    """Raise InsufficientAuthentication (401) unless the session meets the requirement of the action.

    `principal` is None for a command on the machine, which needs no proof.

    The user was verified in the last 15 minutes, and a user who has a factor has used it in this session: a session from
    before the first factor does not count. `userflow.signin.proofs.check_proof` checks a proof in the request
    (`Requirement.needs_proof`). Raises NotAllowed (403) for a client if the action is not for clients, and for a
    third-party application.
    """
    if principal is None:
        return
    reject_third_party(principal)
    if principal.kind == CLIENT:
        if not REQUIREMENTS[action].clients:
            raise NotAllowed("Only a signed-in user can do this, not an application.")
        return
    # A session below the policy may enroll the first factor, or it could never reach it.
    first = action is Action.FIRST_FACTOR and not principal.user.get("mfa_methods")
    if not (principal.is_fresh() if first else is_satisfied(principal)):
        raise InsufficientAuthentication


def reject_third_party(principal: Principal) -> None:
    """Raise NotAllowed (403) for an application that is not the tenant's own: the account of its user is the user's alone.

    What it may learn of the user is at userinfo, limited by the scopes that the user has consented to. Otherwise it could
    enroll a factor and sign in without those limits.
    """
    if principal.is_third_party:
        raise NotAllowed("A third-party application cannot manage the account of its user.")


def is_satisfied(principal: Principal) -> bool:
    """Return whether the user was verified in the last 15 minutes, with the second factor of a user who has one."""
    has_factor = bool(principal.user.get("mfa_methods"))
    return principal.is_fresh() and principal.meets_policy() and (not has_factor or principal.acr == AAL2)

"""The origin of the current call: actor, address, request. Set by the middleware and by authentication."""

from contextvars import ContextVar
from dataclasses import dataclass, replace
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Origin:
    """The actor, the address and the request of a call."""

    actor_kind: str = "system"
    actor_id: str = ""
    address: str = ""
    request_id: str = ""
    # For the log: the tenant that the request is about, and the application that it comes through.
    tenant_id: UUID | None = None
    client_id: UUID | None = None
    # The caller's own tenant; none for operators, and until a token or a console session says who calls.
    actor_tenant_id: UUID | None = None
    # False where `address` may be that of a proxy: many callers would share it.
    address_is_own: bool = True
    # The application that has named the address of its user, where `address` is not that of the connection.
    address_named_by: UUID | None = None
    # For mails that the call causes: the language of the page that the caller reads, and what the caller's client prefers.
    language: str = ""
    accept_language: str = ""
    # Whether the application (`ui_locales`) or the caller asked for the page's language, which comes before the user's own.
    language_is_asked_for: bool = False

    def audit_columns(self) -> dict[str, str]:
        """Return what an audit event stores of the call."""
        names = ("actor_kind", "actor_id", "address", "request_id")
        return {name: getattr(self, name) for name in names}


_origin: ContextVar[Origin] = ContextVar("origin", default=Origin())


def current_origin() -> Origin:
    """Return the origin of the current call; `system` outside a request."""
    return _origin.get()


def set_origin(origin: Origin) -> None:
    """Set the origin of a request or a command."""
    _origin.set(origin)


def set_actor(kind: str, actor_id: str, client_id: UUID | None = None, *, actor_tenant_id: UUID | None = None) -> None:
    """Set the caller, its application and its tenant, once authentication knows them."""
    known = _origin.get()
    _origin.set(
        replace(
            known,
            actor_kind=kind,
            actor_id=actor_id,
            client_id=client_id or known.client_id,
            actor_tenant_id=actor_tenant_id,
        )
    )


def set_tenant(tenant_id: UUID, client_id: UUID | None = None) -> None:
    """Set the tenant and the application of the request, unless they are set already."""
    known = _origin.get()
    if known.tenant_id is None or (known.client_id is None and client_id is not None):
        _origin.set(replace(known, tenant_id=known.tenant_id or tenant_id, client_id=known.client_id or client_id))


def set_end_user_address(address: str, *, client_id: UUID) -> None:
    """Set the address of the end user that a client calls for: its own says nothing about the user.

    Call it only for a confidential client that has authenticated.
    """
    _origin.set(replace(_origin.get(), address=address, address_is_own=True, address_named_by=client_id))


def set_language(language: str, *, asked_for: bool) -> None:
    """Set the language of the page that the caller reads, and whether the application or the caller asked for it."""
    _origin.set(replace(_origin.get(), language=language, language_is_asked_for=asked_for))

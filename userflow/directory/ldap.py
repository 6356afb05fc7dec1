"""Read Active Directory over LDAP (RFC 4511) with python-ldap, an optional package that only this module imports.

The platform opens the connection (`connect`) and Python does TLS; libldap gets a local socket and opens no
connection itself, as its own server address resolves nowhere. Referrals are not followed: they would send the secret to a
server that the response names.
"""

import contextlib
import re
import socket
import ssl
import time
from collections.abc import Generator, Iterator
from typing import Any, Final

from django.conf import settings

from identity_platform.authorities import joined, trusting_public_and
from identity_platform.outbound import Watch
from userflow.directory.connections import connect, relayed
from userflow.directory.models import Target
from userflow.directory.objects import BAD_STATUS, DirectoryObject, group_key
from userflow.errors import DirectoryFailed, LdapNotInstalled

try:
    import ldap
    from ldap.controls import SimplePagedResultsControl
    from pyasn1.error import PyAsn1Error
except ImportError:  # requirements/ldap.txt
    ldap = None

LDAPS, STARTTLS, PLAIN = "ldaps", "starttls", "none"
PORTS: Final = {LDAPS: 636, STARTTLS: 389, PLAIN: 389}
DEFAULT_FILTER: Final = "(&(objectCategory=person)(objectClass=user))"
PAGE: Final = 500
# Group names are long and a user may be in hundreds of groups: this page size keeps a response below its limit.
PAGE_WITH_GROUPS: Final = 100
CONNECT_SECONDS: Final = 5.0
RESPONSE_SECONDS: Final = 30.0
# ADS_UF_ACCOUNTDISABLE ([MS-ADTS] 2.2.16).
DISABLED: Final = 0x2
LATE: Final = "The directory did not respond in time. Try again, or narrow base_dn or user_filter."
_NUMBER = re.compile(rb"-?[0-9]{1,10}")
# Never resolves (RFC 6761 section 6.4), so libldap cannot reconnect by itself.
NOWHERE: Final = "ldap://directory.invalid"
# LDAPMessage 1, extendedReq 1.3.6.1.4.1.1466.20037 (RFC 4511 section 4.14.1).
_START_TLS: Final = b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037"


def must_be_installed() -> None:
    """Raise LdapNotInstalled (501) if the optional package is missing."""
    if ldap is None:
        raise LdapNotInstalled


class LdapReading:
    """A full read of an Active Directory, page by page (RFC 2696). See `objects.DirectoryReader`."""

    full = True
    cursor = ""

    def __init__(
        self,
        target: Target,
        secret: str,
        *,
        user_filter: str,
        attributes: list[str],
        groups: list[str],
        page: int,
        deadline: float | None = None,
        authorities: str = "",
    ) -> None:
        self.target, self.secret, self.deadline = target, secret, deadline
        self.authorities = authorities
        self.filter = user_filter or DEFAULT_FILTER
        self.attributes = attributes
        self.groups = {key: name for name in groups if (key := group_key(name))}
        self.page = min(page, PAGE_WITH_GROUPS) if groups else page

    def members(self) -> None:
        """Return None: objects name their groups themselves (`memberOf`)."""
        return

    def pages(self) -> Generator[list[DirectoryObject], None, None]:
        """Yield the objects that match the filter; end at the deadline, without waiting for a response under way.

        Raises DirectoryFailed (unreachable, untrusted certificate, bind rejected, response cut short or late),
        DirectoryAddressRejected, LdapNotInstalled.
        """
        must_be_installed()
        watch, begun = Watch(), False
        try:
            with contextlib.closing(watch), contextlib.closing(self._responses(watch)) as responses:
                for page in responses:
                    yield page
                    begun = True
        except DirectoryFailed as problem:
            if not watch.over:
                raise
            # If the time of the run is up, the pages read so far count.
            if not begun or self.deadline is None or time.monotonic() < self.deadline:
                raise DirectoryFailed(LATE) from problem

    def _responses(self, watch: Watch) -> Generator[list[DirectoryObject], None, None]:
        attributes = [*self.attributes, "objectGUID", "userAccountControl", *(["memberOf"] if self.groups else [])]
        with (
            _ldap_errors_as_ours(),
            _bound(self.target, self.secret, self.authorities, watch, self._response_seconds()) as directory,
        ):
            paging = SimplePagedResultsControl(True, size=self.page, cookie=b"")
            while True:
                # libldap's own time limits do not apply within a message: on half a message it would read for ever.
                with watch.limit(self._response_seconds()):
                    message_id = directory.search_ext(
                        self.target["base_dn"], ldap.SCOPE_SUBTREE, self.filter, attributes, serverctrls=[paging],
                        timeout=int(RESPONSE_SECONDS),
                    )  # fmt: skip
                    _, rows, _, controls = directory.result3(message_id, timeout=RESPONSE_SECONDS)
                # A row without a name is a referral to another server.
                objects = [values for name, values in rows if name is not None]
                if len(objects) > self.page:
                    raise DirectoryFailed("The directory returned more objects than requested (RFC 2696).")
                cookies = [c.cookie for c in controls if c.controlType == SimplePagedResultsControl.controlType]
                if not objects and any(cookies):
                    raise DirectoryFailed("The directory returned empty pages. Narrow base_dn or user_filter.")
                yield [self._found(values) for values in objects]
                if not cookies:
                    raise DirectoryFailed(
                        "The directory does not support paged results (RFC 2696), so it cannot be read in full."
                    )
                if not cookies[0]:
                    return
                paging.cookie = cookies[0]

    def _response_seconds(self) -> float:
        """Return how long the next response may take: at least a second, as the deadline is checked between two pages."""
        rest = RESPONSE_SECONDS if self.deadline is None else self.deadline - time.monotonic()
        return max(1.0, min(RESPONSE_SECONDS, rest))

    def _found(self, row: dict[str, list[bytes]]) -> DirectoryObject:
        values = {name.lower(): texts for name, texts in row.items() if texts}
        identity = values.get("objectguid", [b""])[0].hex()
        if not 0 < len(identity) <= 64:
            # Skipping the object would count its user as gone.
            raise DirectoryFailed("Objects have no objectGUID. Allow the bind user to read it, or narrow the filter.")
        # A hidden status is not "enabled": it creates, activates or deactivates no user.
        status = values.get("useraccountcontrol", [b""])[0]
        readable = _NUMBER.fullmatch(status) is not None
        within = {group_key(_text(name)) for name in values.get("memberof", [])} if self.groups else set()
        return DirectoryObject(
            external_id=identity,
            attributes={name: _text(texts[0]) for name, texts in values.items() if name != "objectguid"},
            enabled=not (readable and int(status) & DISABLED),
            groups=frozenset(name for key, name in self.groups.items() if key in within),
            problem="" if readable else BAD_STATUS,
        )


def _text(value: bytes) -> str:
    """Return a value as text; a value that is not UTF-8 (RFC 4511 section 4.1.2) counts as absent."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return ""


@contextlib.contextmanager
def _ldap_errors_as_ours() -> Iterator[None]:
    """Translate python-ldap's exceptions. Their texts are not repeated, as they may hold names of people."""
    try:
        yield
    except ldap.INVALID_CREDENTIALS as problem:
        raise DirectoryFailed(
            "The directory rejects the name or the secret. Check bind_dn and enter the secret again."
        ) from problem
    except ldap.NO_SUCH_OBJECT as problem:
        raise DirectoryFailed("The directory has no such base. Check base_dn.") from problem
    except (ldap.FILTER_ERROR, ldap.INVALID_DN_SYNTAX) as problem:
        raise DirectoryFailed("The directory rejects the search. Check base_dn and user_filter.") from problem
    except (ldap.SIZELIMIT_EXCEEDED, ldap.ADMINLIMIT_EXCEEDED, ldap.PARTIAL_RESULTS) as problem:
        raise DirectoryFailed("The directory cut its response short. Raise its limits for the bind user.") from problem
    except (ldap.TIMEOUT, ldap.TIMELIMIT_EXCEEDED) as problem:
        raise DirectoryFailed(LATE) from problem
    except (ldap.SERVER_DOWN, ldap.CONNECT_ERROR) as problem:
        raise DirectoryFailed(
            "The directory ended the connection, or its response was too large. Check port and tls, or narrow user_filter."
        ) from problem
    except ldap.STRONG_AUTH_REQUIRED as problem:
        raise DirectoryFailed("The directory requires encryption. Set tls to ldaps or starttls.") from problem
    except ldap.LDAPError as problem:
        raise DirectoryFailed(f"The directory rejected the search ({type(problem).__name__}).") from problem
    except (ValueError, PyAsn1Error) as problem:
        # python-ldap expects UTF-8 names and well-formed controls.
        raise DirectoryFailed("The directory's response is not valid LDAP (RFC 4511).") from problem


@contextlib.contextmanager
def _bound(target: Target, secret: str, authorities: str, watch: Watch, seconds: float) -> Iterator[Any]:
    """Connect and bind; each step may take `seconds`."""
    host, tls = target["server"], target["tls"]
    if tls == PLAIN and not settings.DIRECTORY_ALLOW_PLAIN_LDAP:
        raise DirectoryFailed("LDAP without TLS is not allowed on this server. Set tls to ldaps or starttls.")
    raw = connect(host, target["port"], timeout=CONNECT_SECONDS)
    try:
        watch.opened(raw)
        raw.settimeout(RESPONSE_SECONDS)
        with watch.limit(seconds):
            channel = relayed(raw if tls == PLAIN else _encrypted(raw, target, authorities), seconds=RESPONSE_SECONDS)
    except BaseException:
        raw.close()
        raise
    # libldap owns the descriptor from here on.
    directory = ldap.initialize(NOWHERE, fileno=channel.detach())
    try:
        directory.protocol_version = ldap.VERSION3
        directory.set_option(ldap.OPT_REFERRALS, 0)
        directory.set_option(ldap.OPT_NETWORK_TIMEOUT, CONNECT_SECONDS)
        directory.set_option(ldap.OPT_TIMEOUT, RESPONSE_SECONDS)
        with watch.limit(seconds):
            directory.simple_bind_s(target["bind_dn"], secret)
        yield directory
    finally:
        with contextlib.suppress(ldap.LDAPError):
            directory.unbind_ext_s()


def _encrypted(raw: socket.socket, target: Target, authorities: str) -> ssl.SSLSocket:
    """Start TLS; verify the certificate for the server's name.

    Trusted are the directory's own authorities alone, or without any the system's, the platform's and those of the tenant.
    """
    own_certificate = target.get("ca_certificate")
    try:
        trusted = (
            ssl.create_default_context(cadata=own_certificate)
            if own_certificate
            else trusting_public_and(joined(settings.OUTBOUND_CA, authorities))
        )
    except (ssl.SSLError, ValueError) as problem:
        raise DirectoryFailed("The CA certificate cannot be read. Send it as PEM.") from problem
    if target["tls"] == STARTTLS:
        _ask_for_tls(raw)
    try:
        return trusted.wrap_socket(raw, server_hostname=target["server"])
    except ssl.SSLCertVerificationError as problem:
        raise DirectoryFailed(
            f"The directory's certificate is not trusted ({problem.verify_message}). Nothing was sent."
        ) from problem
    except (OSError, ValueError) as problem:
        raise DirectoryFailed("The TLS handshake failed. Check port and tls.") from problem


def _ask_for_tls(raw: socket.socket) -> None:
    """Send StartTLS; raise on anything but success, so that no bind is ever unencrypted."""
    try:
        raw.sendall(_START_TLS)
        if _exactly(raw, 1) != b"\x30":
            raise DirectoryFailed("The directory does not use LDAP on this port. Check port and tls.")
        response = _exactly(raw, _length(raw))
    except OSError as problem:
        raise DirectoryFailed("The directory ended the connection. Check port and tls.") from problem
    # messageID 1, then extendedResp (tag 0x78), which begins with the result code. Active Directory writes long lengths.
    inner = response[3:]
    skipped = 2 if inner[1:2] < b"\x80" else 2 + (inner[1] & 0x7F)
    if response[:3] != b"\x02\x01\x01" or inner[:1] != b"\x78" or inner[skipped : skipped + 3] != b"\x0a\x01\x00":
        raise DirectoryFailed("The directory does not support StartTLS. Set tls to ldaps.")


def _length(raw: socket.socket) -> int:
    """Read a BER length (X.690 section 8.1.3); a response to StartTLS is never longer than a few kilobytes."""
    first = _exactly(raw, 1)[0]
    number = first if first < 0x80 else int.from_bytes(_exactly(raw, first & 0x7F), "big")
    if number > 4096:
        raise ConnectionError
    return number


def _exactly(raw: socket.socket, number: int) -> bytes:
    got = b""
    while len(got) < number:
        more = raw.recv(number - len(got))
        if not more:
            raise ConnectionError
        got += more
    return got

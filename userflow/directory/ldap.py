"""Active Directory over LDAP (RFC 4511): the only module that knows python-ldap, which is an optional package.

The connection is ours (`addresses.connect`), TLS is Python's; libldap speaks over what it is handed and opens nothing:
its own address leads nowhere. Referrals are not followed, as they would carry the secret to a server of the answer's
choosing.
"""

import contextlib
import re
import socket
import ssl
import time
from collections.abc import Generator, Iterator
from typing import Any, Final

from django.conf import settings

from identity_platform.outbound import Watch
from userflow.directory.addresses import connect
from userflow.directory.errors import DirectoryFailed, LdapNotInstalled
from userflow.directory.objects import BAD_STATUS, Found, group_key
from userflow.directory.relay import relayed

try:
    import ldap
    from ldap.controls import SimplePagedResultsControl
    from pyasn1.error import PyAsn1Error
except ImportError:  # requirements-ldap.txt
    ldap = None

LDAPS, STARTTLS, PLAIN = "ldaps", "starttls", "none"
PORTS: Final = {LDAPS: 636, STARTTLS: 389, PLAIN: 389}
DEFAULT_FILTER: Final = "(&(objectCategory=person)(objectClass=user))"
PAGE: Final = 500
# Names of groups are long, and somebody may be in hundreds: with a page of these an answer stays below what is taken.
PAGE_WITH_GROUPS: Final = 100
CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0
# ADS_UF_ACCOUNTDISABLE ([MS-ADTS] 2.2.16).
DISABLED: Final = 0x2
LATE: Final = "The directory did not answer in time: try again, or narrow base_dn or user_filter."
_NUMBER = re.compile(rb"-?[0-9]{1,10}")
# Never looked up (RFC 6761 section 6.4): should libldap want to connect again by itself, it reaches nobody.
NOWHERE: Final = "ldap://directory.invalid"
# LDAPMessage 1, extendedReq 1.3.6.1.4.1.1466.20037 (RFC 4511 section 4.14.1).
_START_TLS: Final = b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037"


def is_installed() -> bool:
    """Whether this installation can read LDAP directories."""
    return ldap is not None


def must_be_installed() -> None:
    """LdapNotInstalled (501) where the optional package is missing."""
    if ldap is None:
        raise LdapNotInstalled


class LdapReading:
    """An Active Directory that is read whole, page by page (RFC 2696)."""

    full = True
    cursor = ""

    def __init__(
        self,
        target: dict[str, Any],
        secret: str,
        *,
        user_filter: str,
        attributes: list[str],
        groups: list[str],
        page: int,
        deadline: float | None = None,
    ) -> None:
        self.target, self.secret, self.deadline = target, secret, deadline
        self.filter = user_filter or DEFAULT_FILTER
        self.attributes = attributes
        self.groups = {key: name for name in groups if (key := group_key(name))}
        self.page = min(page, PAGE_WITH_GROUPS) if groups else page

    def members(self) -> None:
        """The objects name their groups themselves (`memberOf`)."""
        return

    def pages(self) -> Generator[list[Found], None, None]:
        """The objects that the filter means. After the deadline it ends: an answer on its way is not waited for.

        Raises DirectoryFailed (cannot be reached, certificate not trusted, bind rejected, answers cut short, or too
        late), DirectoryAddressRejected, LdapNotInstalled.
        """
        must_be_installed()
        watch, begun = Watch(), False
        try:
            with contextlib.closing(watch), contextlib.closing(self._answers(watch)) as answers:
                for page in answers:
                    yield page
                    begun = True
        except DirectoryFailed as problem:
            if not watch.over:
                raise
            # With all of a run's time gone, what was read so far counts.
            if not begun or self.deadline is None or time.monotonic() < self.deadline:
                raise DirectoryFailed(LATE) from problem

    def _answers(self, watch: Watch) -> Generator[list[Found], None, None]:
        wanted = [*self.attributes, "objectGUID", "userAccountControl", *(["memberOf"] if self.groups else [])]
        with _speaking(), _bound(self.target, self.secret, watch, self._patience()) as directory:
            paging = SimplePagedResultsControl(True, size=self.page, cookie=b"")
            while True:
                # libldap's own time limits do not hold within a message: half of one, and it reads for ever.
                with watch.limit(self._patience()):
                    asked = directory.search_ext(
                        self.target["base_dn"], ldap.SCOPE_SUBTREE, self.filter, wanted, serverctrls=[paging],
                        timeout=int(ANSWER_SECONDS),
                    )  # fmt: skip
                    _, rows, _, controls = directory.result3(asked, timeout=ANSWER_SECONDS)
                # A row without a name is a referral to another server.
                objects = [values for name, values in rows if name is not None]
                if len(objects) > self.page:
                    raise DirectoryFailed("The directory answers with more objects than asked for (RFC 2696).")
                cookies = [c.cookie for c in controls if c.controlType == SimplePagedResultsControl.controlType]
                if not objects and any(cookies):
                    raise DirectoryFailed("The directory answers with empty pages: narrow base_dn or user_filter.")
                yield [self._found(values) for values in objects]
                if not cookies:
                    raise DirectoryFailed("The directory does not answer in pages (RFC 2696): it cannot be read whole.")
                if not cookies[0]:
                    return
                paging.cookie = cookies[0]

    def _patience(self) -> float:
        """How long the next answer may take; a moment also when the time is up, as that is noticed between two pages."""
        rest = ANSWER_SECONDS if self.deadline is None else self.deadline - time.monotonic()
        return max(1.0, min(ANSWER_SECONDS, rest))

    def _found(self, row: dict[str, list[bytes]]) -> Found:
        values = {name.lower(): texts for name, texts in row.items() if texts}
        identity = values.get("objectguid", [b""])[0].hex()
        if not 0 < len(identity) <= 64:
            # Going on without would take everybody whose id is hidden for gone.
            raise DirectoryFailed(
                "Objects without objectGUID: give the reading user the right to see it, or narrow the filter."
            )
        # Hidden is not "enabled": nobody is switched on for it, or off, or made.
        status = values.get("useraccountcontrol", [b""])[0]
        readable = _NUMBER.fullmatch(status) is not None
        within = {group_key(_text(name)) for name in values.get("memberof", [])} if self.groups else set()
        return Found(
            external_id=identity,
            attributes={name: _text(texts[0]) for name, texts in values.items() if name != "objectguid"},
            enabled=not (readable and int(status) & DISABLED),
            groups=frozenset(name for key, name in self.groups.items() if key in within),
            problem="" if readable else BAD_STATUS,
        )


def _text(value: bytes) -> str:
    """A value as text; what is no UTF-8 (RFC 4511 section 4.1.2) is as good as absent."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return ""


@contextlib.contextmanager
def _speaking() -> Iterator[None]:
    """Narrow python-ldap's exceptions to ours. Their texts are not repeated: they may hold names of people."""
    try:
        yield
    except ldap.INVALID_CREDENTIALS as problem:
        raise DirectoryFailed(
            "The directory refuses the name or the secret: check bind_dn and enter the secret again."
        ) from problem
    except ldap.NO_SUCH_OBJECT as problem:
        raise DirectoryFailed("The directory has no such base: check base_dn.") from problem
    except (ldap.FILTER_ERROR, ldap.INVALID_DN_SYNTAX) as problem:
        raise DirectoryFailed(
            "The directory does not understand the search: check base_dn and user_filter."
        ) from problem
    except (ldap.SIZELIMIT_EXCEEDED, ldap.ADMINLIMIT_EXCEEDED, ldap.PARTIAL_RESULTS) as problem:
        raise DirectoryFailed("The directory cut its answer short: raise its limits for the reading user.") from problem
    except (ldap.TIMEOUT, ldap.TIMELIMIT_EXCEEDED) as problem:
        raise DirectoryFailed(LATE) from problem
    except (ldap.SERVER_DOWN, ldap.CONNECT_ERROR) as problem:
        raise DirectoryFailed(
            "The directory ended the connection, or its answer was too large: check port and tls, or narrow user_filter."
        ) from problem
    except ldap.STRONG_AUTH_REQUIRED as problem:
        raise DirectoryFailed("The directory wants an encrypted connection: set tls to ldaps or starttls.") from problem
    except ldap.LDAPError as problem:
        raise DirectoryFailed(f"The directory refused the search ({type(problem).__name__}).") from problem
    except (ValueError, PyAsn1Error) as problem:
        # To python-ldap names of objects and attributes are UTF-8, and controls what they say they are.
        raise DirectoryFailed(
            "The directory's answer cannot be read: it is not what LDAP says (RFC 4511)."
        ) from problem


@contextlib.contextmanager
def _bound(target: dict[str, Any], secret: str, watch: Watch, patience: float) -> Iterator[Any]:
    """A connection that is bound, all of it within the patience."""
    host, tls = target["server"], target["tls"]
    if tls == PLAIN and not settings.DIRECTORY_ALLOW_PLAIN_LDAP:
        raise DirectoryFailed("LDAP without TLS is not allowed here: set tls to ldaps or starttls.")
    raw = connect(host, target["port"], timeout=CONNECT_SECONDS)
    try:
        watch.opened(raw)
        raw.settimeout(ANSWER_SECONDS)
        with watch.limit(patience):
            channel = relayed(raw if tls == PLAIN else _encrypted(raw, target), patience=ANSWER_SECONDS)
    except BaseException:
        raw.close()
        raise
    # libldap owns the descriptor from here on.
    directory = ldap.initialize(NOWHERE, fileno=channel.detach())
    try:
        directory.protocol_version = ldap.VERSION3
        directory.set_option(ldap.OPT_REFERRALS, 0)
        directory.set_option(ldap.OPT_NETWORK_TIMEOUT, CONNECT_SECONDS)
        directory.set_option(ldap.OPT_TIMEOUT, ANSWER_SECONDS)
        with watch.limit(patience):
            directory.simple_bind_s(target["bind_dn"], secret)
        yield directory
    finally:
        with contextlib.suppress(ldap.LDAPError):
            directory.unbind_ext_s()


def _encrypted(raw: socket.socket, target: dict[str, Any]) -> ssl.SSLSocket:
    """TLS with a certificate that is verified for the server's name, by the given authorities or the system's."""
    try:
        trusted = ssl.create_default_context(cadata=target.get("ca_certificate") or None)
    except (ssl.SSLError, ValueError) as problem:
        raise DirectoryFailed("The certificate of the authority cannot be read: send it as PEM.") from problem
    if target["tls"] == STARTTLS:
        _ask_for_tls(raw)
    try:
        return trusted.wrap_socket(raw, server_hostname=target["server"])
    except ssl.SSLCertVerificationError as problem:
        raise DirectoryFailed(
            f"The directory's certificate is not trusted ({problem.verify_message}): nothing was sent."
        ) from problem
    except (OSError, ValueError) as problem:
        raise DirectoryFailed("No TLS connection could be made: check port and tls.") from problem


def _ask_for_tls(raw: socket.socket) -> None:
    """The StartTLS operation; anything but success ends here, never in an unencrypted bind."""
    try:
        raw.sendall(_START_TLS)
        if _exactly(raw, 1) != b"\x30":
            raise DirectoryFailed("The directory does not speak LDAP on this port: check port and tls.")
        answer = _exactly(raw, _length(raw))
    except OSError as problem:
        raise DirectoryFailed("The directory ended the connection: check port and tls.") from problem
    # messageID 1, then extendedResp (tag 0x78), which begins with the result code. Active Directory writes long lengths.
    inner = answer[3:]
    skipped = 2 if inner[1:2] < b"\x80" else 2 + (inner[1] & 0x7F)
    if answer[:3] != b"\x02\x01\x01" or inner[:1] != b"\x78" or inner[skipped : skipped + 3] != b"\x0a\x01\x00":
        raise DirectoryFailed("The directory offers no StartTLS: set tls to ldaps.")


def _length(raw: socket.socket) -> int:
    """A length of BER (X.690 section 8.1.3); an answer of more than a few kilobytes is none to StartTLS."""
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

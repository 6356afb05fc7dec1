"""Read Microsoft Entra ID over Graph v1.0.

Client credentials (RFC 6749 section 4.4), pages by `@odata.nextLink`, changes by delta query, throttling by
`Retry-After`. Connections are guarded (`identity_platform.outbound`): checked addresses, no redirects, no proxy from the
environment. A link in a response must stay on the host that was asked, so the token goes nowhere else.
"""

import time
from collections.abc import Generator, Iterator
from typing import Final
from urllib.parse import quote, urlsplit

import orjson
import requests
from django.conf import settings

from identity_platform.outbound import GuardedSession, NotResolved, TargetRejected, retry_after_seconds
from userflow.directory.connections import reach
from userflow.directory.models import Target
from userflow.directory.objects import BAD_STATUS, DirectoryObject
from userflow.errors import DirectoryAddressRejected, DirectoryFailed

# National clouds (Microsoft Graph documentation, "National cloud deployments"): the token host and the Graph host.
CLOUDS: Final[dict[str, tuple[str, str]]] = {
    "global": ("https://login.microsoftonline.com", "https://graph.microsoft.com"),
    "us_government": ("https://login.microsoftonline.us", "https://graph.microsoft.us"),
    "us_government_dod": ("https://login.microsoftonline.us", "https://dod-graph.microsoft.us"),
    "china": ("https://login.chinacloudapi.cn", "https://microsoftgraph.chinacloudapi.cn"),
}
CONNECT_SECONDS: Final = 5.0
RESPONSE_SECONDS: Final = 30.0
# The total time that a run waits for `Retry-After`; after it the run ends and the next one tries again.
MOST_WAITING_SECONDS: Final = 120.0
MOST_BYTES: Final = 32 * 1024 * 1024
PAGE: Final = 500
BUSY: Final = frozenset({429, 503, 504})


def clouds() -> dict[str, tuple[str, str]]:
    """Return the clouds that a configuration may name: Microsoft's, and those that an operator added."""
    return CLOUDS | settings.DIRECTORY_CLOUDS


# A JSON object of a response.
Json = dict[str, object]


class _LinkTooOld(DirectoryFailed):
    """410 of the directory: it no longer accepts its own link. A read of changes begins again with a full one."""

    message = "The directory rejects its own links during the read. Try again."


class GraphReading:
    """A full read of an Entra ID, or a read of changes since `cursor`. See `objects.DirectoryReader`."""

    def __init__(
        self,
        target: Target,
        secret: str,
        *,
        cursor: str,
        attributes: list[str],
        groups: list[str],
        deadline: float | None = None,
        authorities: str = "",
    ) -> None:
        self.target, self.secret, self.groups = target, secret, groups
        self.cursor, self.full = cursor, not cursor
        self.select = ",".join(["id", "accountEnabled", *attributes])
        self.login, self.graph = clouds().get(target["cloud"], ("", ""))
        if not self.graph:
            raise DirectoryFailed(f"This server has no cloud {target['cloud']}. Change `cloud`.")
        self.deadline = deadline
        self.waited = 0.0
        self.token = ""
        # One session per host. Plain HTTP only if an operator's own cloud uses it.
        self.at_login, self.at_graph = (
            GuardedSession(reach(plain_http=base.startswith("http://")), authorities=authorities)
            for base in (self.login, self.graph)
        )

    def pages(self) -> Generator[list[DirectoryObject], None, None]:
        """Yield the users or their changes. Raises DirectoryFailed, DirectoryAddressRejected."""
        try:
            yield from self._following(self.cursor or self._everything())
        except _LinkTooOld:
            if self.full:
                raise
            self.full = True
            yield from self._following(self._everything())

    def members(self) -> Iterator[tuple[str, set[str]]]:
        """Yield each mapped group with its transitive members, a page at a time."""
        for group in self.groups:
            members = f"{self.graph}/v1.0/groups/{quote(group, safe='')}/transitiveMembers?$select=id&$top={PAGE}"
            for rows, _ in self._lists(members):
                yield group, {_identity(row) for row in rows}

    def _everything(self) -> str:
        return f"{self.graph}/v1.0/users/delta?$select={quote(self.select, safe=',')}"

    def _following(self, link: str) -> Iterator[list[DirectoryObject]]:
        for rows, delta_link in self._lists(link):
            yield [_directory_object(row) for row in rows]
            self.cursor = delta_link

    def _lists(self, link: str) -> Iterator[tuple[list[Json], str]]:
        """Yield the pages of a list, from link to link, each with its delta link (only the last page has one)."""
        while link:
            page = self._ask(link)
            rows = page.get("value")
            if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
                raise DirectoryFailed("The directory's response is not a list of objects.")
            yield rows, str(page.get("@odata.deltaLink") or "")
            link = str(page.get("@odata.nextLink") or "")

    def _ask(self, link: str) -> Json:
        """Return one response of Graph; wait when throttled, and renew an expired token once."""
        if _origin(link) != _origin(self.graph):
            raise DirectoryFailed("The directory links to another host. The link was not followed.")
        renewed = False
        while True:
            if not self.token:
                self.token, renewed = self._new_token(), True
            headers = {"Authorization": f"Bearer {self.token}", "Prefer": f"odata.maxpagesize={PAGE}"}
            status, body, retry_after = self._call(self.at_graph, link, headers=headers)
            if status == 200:
                return body
            if status == 401 and not renewed:
                self.token = ""
                continue
            if status in BUSY:
                self._wait(retry_after)
                continue
            if status == 410:
                raise _LinkTooOld
            raise DirectoryFailed(_error(status, body))

    def _new_token(self) -> str:
        where = f"{self.login}/{quote(self.target['directory_tenant_id'], safe='')}/oauth2/v2.0/token"
        grant = {
            "grant_type": "client_credentials",
            "client_id": self.target["application_id"],
            "client_secret": self.secret,
            "scope": f"{self.graph}/.default",
        }
        while True:
            status, body, retry_after = self._call(self.at_login, where, form=grant)
            token = body.get("access_token")
            if status == 200 and isinstance(token, str) and token.isascii() and token.isprintable():
                return token
            if status not in BUSY:
                raise DirectoryFailed(
                    f"The directory issues no token ({status}). Check directory_tenant_id and application_id, and enter the"
                    " secret again if it has expired."
                )
            self._wait(retry_after)

    def _call(
        self,
        session: GuardedSession,
        where: str,
        *,
        headers: dict[str, str] | None = None,
        form: dict[str, str] | None = None,
    ) -> tuple[int, Json, float]:
        """GET, or POST a form; return the status, the JSON object (empty if there is none) and the seconds of Retry-After."""
        timeout = (CONNECT_SECONDS, RESPONSE_SECONDS)
        try:
            # Bounded as a whole too: a response that drips would last for ever.
            with (
                session.within(2 * RESPONSE_SECONDS),
                session.request(
                    "POST" if form else "GET", where, headers=headers, data=form, timeout=timeout, stream=True
                ) as response,
            ):
                body = b""
                for part in response.iter_content(65_536):
                    body += part
                    if len(body) > MOST_BYTES:
                        raise DirectoryFailed("The directory's response is too large.")
        except NotResolved as problem:
            raise DirectoryFailed(
                "The directory's host name cannot be resolved. Check this server's name service, then try again."
            ) from problem
        except TargetRejected as refused:
            raise DirectoryAddressRejected("cloud") from refused
        except requests.exceptions.SSLError as problem:
            raise DirectoryFailed("The directory's certificate is not trusted. Nothing was sent.") from problem
        except requests.RequestException as problem:
            raise DirectoryFailed("The directory does not respond. Try again later.") from problem
        try:
            document = orjson.loads(body) if body else {}
        except orjson.JSONDecodeError:
            document = {}
        wait_seconds = retry_after_seconds(response.headers.get("Retry-After"))
        retry_after = 5.0 if wait_seconds is None else max(1.0, wait_seconds)
        return response.status_code, document if isinstance(document, dict) else {}, retry_after

    def _wait(self, seconds: float) -> None:
        late = self.deadline is not None and time.monotonic() + seconds > self.deadline
        if late or self.waited + seconds > MOST_WAITING_SECONDS:
            raise DirectoryFailed("The directory throttles for longer than a run waits. The next run tries again.")
        self.waited += seconds
        time.sleep(seconds)


def _identity(row: Json) -> str:
    identity = row.get("id")
    if not isinstance(identity, str) or not 0 < len(identity) <= 64 or not identity.isascii():
        raise DirectoryFailed("The directory's response has an object without an id.")
    return identity


def _directory_object(row: Json) -> DirectoryObject:
    enabled, removed = row.get("accountEnabled"), "@removed" in row
    return DirectoryObject(
        external_id=_identity(row),
        attributes={name.lower(): value for name, value in row.items() if isinstance(value, str)},
        enabled=enabled is not False,
        removed=removed,
        # A hidden status is not "enabled": it creates or activates no user.
        problem="" if removed or isinstance(enabled, bool) else BAD_STATUS,
    )


def _origin(link: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port, which a link must share with the configured host."""
    try:
        parts = urlsplit(link)
        return parts.scheme, parts.hostname, parts.port
    except ValueError:
        return "", None, None


def _error(status: int, body: Json) -> str:
    inner = body.get("error")
    code = inner.get("code") if isinstance(inner, dict) else None
    code_suffix = f" {code}" if isinstance(code, str) and code.isascii() and code.isalnum() and len(code) < 64 else ""
    hint = {
        401: "it does not accept the application's token",
        403: "grant the application User.Read.All (and GroupMember.Read.All for groups) and consent to it",
        404: "a mapped group does not exist",
    }.get(status, "try again later")
    return f"The directory refuses the request ({status}{code_suffix}): {hint}."

"""The session of one end user: sign-in, calls with refresh, step-up, sign-out, forgotten password."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast
from urllib.parse import quote

import httpx2

from identity_sdk.errors import ApiError, SignedOut, checked_fields, fields_of, is_token_rejected, json_of
from identity_sdk.storage import MemoryStorage, Tokens, TokenStorage
from identity_sdk.transport import SingleFlight, checked_url, origin_of, shared_http

T = TypeVar("T")
# Seconds before its end in which an access token is no longer used.
LEEWAY = 10


class IdentityClient:
    """Signs one end user in and calls the platform with the user's tokens. Threads may share it.

    An access token that has expired or is rejected is refreshed once, however many calls wait for it; they all use the
    successor. If the platform rejects the refresh token, the tokens are removed, `on_signed_out` is called (unless another
    sign-in has replaced them) and the calls raise SignedOut.
    """

    def __init__(
        self,
        base_url: str,
        *,
        tenant_id: str,
        client_id: str,
        client_secret: str | None = None,
        storage: TokenStorage | None = None,
        on_signed_out: Callable[[], object] = lambda: None,
        http: httpx2.Client | None = None,
    ) -> None:
        self.base_url = checked_url("base_url", base_url).rstrip("/")
        self.tenant_id, self.client_id = tenant_id, client_id
        self.storage = storage or MemoryStorage()
        self._secret = {"client_secret": client_secret} if client_secret else {}
        self._http = http or shared_http()
        self._on_signed_out = on_signed_out
        # Held while tokens are read and replaced; always acquired after the lock of the storage.
        self._lock = threading.Lock()
        self._refresh = SingleFlight[Tokens]()

    # --- Signing in ---

    def sign_in(self, email: str, password: str) -> "SecondStep | None":
        """Sign in by password. Return None if the user is signed in, or the second step that is missing."""
        body = {"client_id": self.client_id, "tenant_id": self.tenant_id, "email": email, "password": password}
        said = self.post_publicly("/uflow/auth/enduser/login", {**body, **self._secret})
        if not isinstance(said, dict) or not said.get("mfa_required"):
            self.accept(said)
            return None
        checked_fields(said, mfa_token=str, methods=list, expires_in=(int, float))
        return SecondStep(
            self,
            email,
            mfa_token=said["mfa_token"],
            methods=tuple(said["methods"]),
            expires_in=said["expires_in"],
            enrollment_ticket=said.get("enrollment_ticket"),
        )

    def passkey_options(self) -> dict[str, Any]:
        """Return options for `navigator.credentials.get()` of a sign-in by passkey alone."""
        body = {"tenant_id": self.tenant_id, "client_id": self.client_id}
        return dict(self.post_publicly("/webauthn/enduser/beginAuthentication", body))

    def sign_in_with_passkey(self, response: Mapping[str, Any]) -> None:
        """Sign in with the browser's response to `passkey_options`."""
        body = {"tenant_id": self.tenant_id, "response": response, **self._secret}
        self.accept(self.post_publicly("/webauthn/enduser/finishAuthentication", body))

    def accept(self, response: Mapping[str, Any]) -> None:
        """Store the tokens of any response that completes a sign-in. Raises InvalidResponse."""
        tokens = _tokens_of(response)
        with self._exclusively(), self._lock:
            self.storage.save(tokens)

    def forgot_password(self, email: str) -> None:
        """Have a link for a new password mailed. The response is the same for unknown users."""
        self.post_publicly("/uflow/auth/enduser/password/forgot", {"email": email, "client_id": self.client_id})

    def reset_password(self, token: str, password: str) -> None:
        """Set a new password with the token of the mail. Every session of the user ends."""
        self.post_publicly("/uflow/auth/enduser/password/reset", {"token": token, "password": password})

    # --- Signed in ---

    @property
    def is_signed_in(self) -> bool:
        return self.storage.load() is not None

    def call(
        self,
        method: str,
        path: str,
        returns: type[T],
        *,
        path_params: Mapping[str, str] | None = None,
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> T:
        """Call the platform as the user.

        Args:
            path: of the API, such as `/authmgr/roles/{role_id}`. Put values from elsewhere into `path_params`, which quotes
                them, and not into the path.
            returns: the type of the response, such as one of `identity_sdk.models`.

        Raises ApiError, StepUpRequired, SignedOut, InvalidResponse.
        """
        url = self._url_of(path, path_params or {})
        tokens = self._valid_tokens()
        response = self._send(method, url, tokens, json=json, params=params, headers=headers)
        if is_token_rejected(response):
            tokens = self._valid_tokens(rejected=tokens.access_token)
            response = self._send(method, url, tokens, json=json, params=params, headers=headers)
        return cast(T, json_of(response))

    def access_token(self) -> str:
        """Return a valid access token for calls to other APIs, refreshed if needed. Raises SignedOut."""
        return self._valid_tokens().access_token

    def step_up(self, **proof: Any) -> str:
        """Prove the session again, by one of `password`, `code`, `backup_code`, `sms_code`, `response` (of a passkey).

        Return a `proof_token`: it works once, within five minutes, where a call needs a proof in its body.
        """
        said = self.call("POST", "/authmgr/step-up", dict[str, Any], json=proof)
        checked_fields(said, access_token=str, proof_token=str, expires_in=(int, float))
        with self._exclusively(), self._lock:
            tokens = self.storage.load()
            if tokens is None:
                raise SignedOut("The session has ended meanwhile.")
            self.storage.save(replace(tokens, access_token=said["access_token"], expires_at=_end_of(said)))
        return str(said["proof_token"])

    def step_up_options(self) -> dict[str, Any]:
        """Return options for `navigator.credentials.get()`, whose result is the proof `response`."""
        return self.call("POST", "/authmgr/step-up/options", dict[str, Any], json={})

    def sign_out(self, *, everywhere: bool = False) -> None:
        """End the session, or every session of the user. The tokens are removed even if the platform is unreachable."""
        try:
            self.call("POST", "/authmgr/logout", object, json={"all": everywhere})
        except SignedOut:
            pass
        finally:
            with self._exclusively(), self._lock:
                self.storage.save(None)

    # --- Mechanism ---

    def post_publicly(self, path: str, body: Mapping[str, Any]) -> Any:
        """Post JSON without an access token. Raises ApiError."""
        return json_of(self._http.post(self.base_url + path, json=body, follow_redirects=False))

    def _url_of(self, path: str, values: Mapping[str, str]) -> httpx2.URL:
        if not path.startswith("/") or any(value in ("", ".", "..") for value in values.values()):
            raise ValueError("The path must begin with `/`, and no value in it may be empty, `.` or `..`.")
        quoted = {name: quote(value, safe="") for name, value in values.items()}
        url = httpx2.URL(self.base_url + (path.format_map(quoted) if quoted else path))
        if origin_of(url) != origin_of(self.base_url):
            raise ValueError("The path leads to another origin.")
        return url

    def _send(self, method: str, url: httpx2.URL, tokens: Tokens, **options: Any) -> httpx2.Response:
        headers = httpx2.Headers(options.pop("headers"))
        headers["Authorization"] = f"Bearer {tokens.access_token}"
        # A redirect would repeat the body elsewhere.
        return self._http.request(method, url, headers=headers, follow_redirects=False, **options)

    def _exclusively(self) -> AbstractContextManager[object]:
        """Return the lock of a storage that several processes use; not all have one."""
        work: Callable[[], AbstractContextManager[object]] = getattr(self.storage, "exclusively", nullcontext)
        return work()

    def _valid_tokens(self, rejected: str | None = None) -> Tokens:
        """Return the stored tokens, refreshed if they have expired or the platform has `rejected` the access token."""
        tokens = self.storage.load()
        if tokens is not None and _is_usable(tokens, rejected):
            return tokens
        ended = list[bool]()

        def refresh() -> Tokens:
            with self._exclusively():
                return self._refreshed(rejected, ended)

        try:
            return self._refresh.run(refresh)
        finally:
            # After the refresh, so that the callback may use this client.
            if any(ended):
                self._on_signed_out()

    def _refreshed(self, rejected: str | None, ended: list[bool]) -> Tokens:
        """Refresh the tokens; `ended` gets whether they were removed."""
        # Another thread or process may have refreshed them meanwhile.
        tokens = self.storage.load()
        if tokens is None:
            raise SignedOut("No user is signed in.")
        if _is_usable(tokens, rejected):
            return tokens
        form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token, "client_id": self.client_id}
        try:
            data, url = {**form, **self._secret}, f"{self.base_url}/authmgr/token"
            said = fields_of(self._http.post(url, data=data, follow_redirects=False))
        except ApiError as error:
            if error.code != "invalid_grant":
                raise  # the session may still be valid: 429, 503, a rotated client secret, a suspended tenant
            ended.append(self._replace(tokens, None))
            raise SignedOut(error.message) from error
        fresh = _tokens_of({"refresh_token": tokens.refresh_token, **said})
        self._replace(tokens, fresh)
        return fresh

    def _replace(self, tokens: Tokens, fresh: Tokens | None) -> bool:
        """Store the successor, unless the user has signed out or in again meanwhile; return whether it was stored."""
        with self._lock:
            current = self.storage.load()
            is_same = current is not None and current.refresh_token == tokens.refresh_token
            if is_same:
                self.storage.save(fresh)
            return is_same


@dataclass(frozen=True)
class SecondStep:
    """A sign-in that waits for a factor; one of the methods completes it.

    Attributes:
        methods: of `webauthn`, `totp`, `sms`, `backup_code`. Empty if the user must enroll a factor first: send
            `enrollment_ticket` and `mfa_token` with the calls that enroll, and give the last response to `accept`.
    """

    client: IdentityClient = field(repr=False)
    email: str
    mfa_token: str = field(repr=False)
    methods: tuple[str, ...]
    expires_in: int
    enrollment_ticket: str | None = field(default=None, repr=False)

    def totp(self, code: str) -> None:
        """Complete the sign-in with a code of the authenticator app."""
        self._complete("/webauthn/totp/verifyLogin", code=code)

    def backup_code(self, code: str) -> None:
        """Complete the sign-in with a backup code, which works once."""
        self._complete("/webauthn/totp/verifyLogin", backup_code=code)

    def send_sms(self) -> None:
        """Have a code sent to the user's phone."""
        self._post("/webauthn/sms/requestCode", client_id=self.client.client_id)

    def sms(self, code: str) -> None:
        """Complete the sign-in with the code that was sent."""
        self._complete("/webauthn/sms/verify", client_id=self.client.client_id, code=code)

    def passkey_options(self) -> dict[str, Any]:
        """Return options for `navigator.credentials.get()`."""
        return dict(self._post("/webauthn/enduser/beginAuthentication"))

    def passkey(self, response: Mapping[str, Any]) -> None:
        """Complete the sign-in with the browser's response to `passkey_options`."""
        self._complete("/webauthn/enduser/finishAuthentication", response=response)

    def _post(self, path: str, **fields: Any) -> Any:
        body = {"tenant_id": self.client.tenant_id, "email": self.email, "mfa_token": self.mfa_token, **fields}
        return self.client.post_publicly(path, body)

    def _complete(self, path: str, **fields: Any) -> None:
        self.client.accept(self._post(path, **fields))


def _is_usable(tokens: Tokens, rejected: str | None) -> bool:
    return tokens.access_token != rejected and tokens.expires_at - LEEWAY > time.time()


def _end_of(response: Mapping[str, Any]) -> float:
    return time.time() + float(response["expires_in"])


def _tokens_of(response: Mapping[str, Any]) -> Tokens:
    checked_fields(response, access_token=str, refresh_token=str, expires_in=(int, float))
    return Tokens(response["access_token"], response["refresh_token"], _end_of(response))

"""The end of an authorization request: where the browser goes, and how it brings the response parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlencode

# In the query of the redirect URI, or by a form that the browser posts there (OAuth 2.0 Form Post Response Mode).
QUERY, FORM_POST, SIGNED = "query", "form_post", "jwt"
# Signed, and brought in one of these two ways (JWT Secured Authorization Response Mode, section 2.3).
SIGNED_MODES: Final = {SIGNED: QUERY, "query.jwt": QUERY, "form_post.jwt": FORM_POST}
RESPONSE_MODES: Final = (QUERY, FORM_POST, *SIGNED_MODES)


@dataclass(frozen=True, slots=True)
class AuthorizationResponse:
    """The response to an authorization request, or without parameters a page of the tenant."""

    address: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    mode: str = QUERY

    @property
    def url(self) -> str:
        """Return the address with the parameters in its query (RFC 6749 section 4.1.2)."""
        if not self.parameters:
            return self.address
        # The registered address is kept character by character: it may have a scheme that urllib does not know.
        address = self.address
        separator = "" if address.endswith(("?", "&")) else "&" if "?" in address else "?"
        return f"{address}{separator}{urlencode(self.parameters, quote_via=quote)}"

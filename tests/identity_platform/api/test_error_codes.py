"""Every error has a stable code of its own, and docs/errors.md describes those that the API returns."""

import re
from collections import Counter

from identity_platform.api import errors
from identity_platform.api.error_responses import error_classes
from openid.errors import (
    DeviceRequestRejected,
    PushedRequestRejected,
    RejectedByAuthorization,
    TenantMoved,
    UnsupportedGrantType,
)
from openid.pages.errors import (
    OtherAccount,
    RequestOfOtherBrowser,
    SignedInElsewhere,
    SignedOutElsewhere,
    WrongOrUnverified,
)
from tests.machine.conftest import ROOT
from tests.openapi.document import EVERYWHERE, document, documented_codes
from userflow.directory.graph import _LinkTooOld
from userflow.errors import ClientNotAuthenticated, FactorRequired
from userflow.oauth_errors import DpopRejected, DpopRejectedWithoutNonce, InvalidRequest

# Classes with the code of another class: programs must not tell them apart, or the RFC gives them one name.
SHARED = {
    # The address of a tenant that has moved is like one that never existed.
    TenantMoved,
    # Whether the password or the address is wrong or unverified.
    WrongOrUnverified,
    # Pages tell people why; programs send no forms of pages.
    SignedInElsewhere,
    SignedOutElsewhere,
    OtherAccount,
    RequestOfOtherBrowser,
    # RFC 9470: one code; the challenge says what is missing.
    FactorRequired,
    _LinkTooOld,
    # RFC 6749, RFC 8628, RFC 9126 and RFC 9449.
    InvalidRequest,
    RejectedByAuthorization,
    DeviceRequestRejected,
    PushedRequestRejected,
    UnsupportedGrantType,
    ClientNotAuthenticated,
    DpopRejected,
    DpopRejectedWithoutNonce,
}
CLASSES = set(error_classes())


def test_codes_are_snake_case() -> None:
    assert [kind for kind in CLASSES if not re.fullmatch(r"[a-z]+(_[a-z0-9]+)*", kind.code)] == []


def test_each_class_states_a_code_of_its_own() -> None:
    assert {kind for kind in CLASSES if "code" not in vars(kind)} <= SHARED
    uses = Counter(kind.code for kind in CLASSES - SHARED)
    assert [code for code, count in uses.items() if count > 1] == []


def test_shared_codes_belong_to_another_class() -> None:
    own = {kind.code for kind in CLASSES - SHARED}
    assert [kind for kind in SHARED if kind.code not in own] == []


def test_document_lists_causes_of_oauth_errors() -> None:
    listed = document()["components"]["schemas"]["OAuthErrorBody"]["properties"]["code"]["enum"]
    assert {kind.oauth_cause for kind in CLASSES} - {""} == set(listed)


def test_unknown_users_and_wrong_passwords_have_one_code() -> None:
    assert WrongOrUnverified.code == "credentials_invalid"


def listed(title: str) -> set[tuple[str, int]]:
    """Return code and status of the rows below a heading of the page."""
    page = (ROOT / "docs/errors.md").read_text()
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, title
    rows = re.findall(r"^\| `(\w+)` \| ([0-9, ]+) \| .+ \|$", found[1], re.MULTILINE)
    return {(code, int(status)) for code, statuses in rows for status in statuses.split(", ")}


def returned(prefix: str = "", *, oauth: bool = False) -> set[tuple[str, int]]:
    """Return code and status of the errors in the document, of one route group."""
    from identity_platform.api.app_parts import is_oauth

    return {
        (code, int(status))
        for path, methods in document()["paths"].items()
        if path.startswith("/exsvc/") == bool(prefix) and is_oauth(path) == oauth
        for method, operation in methods.items()
        for status in operation["responses"]
        if status >= "400"
        for code in documented_codes(method, path, int(status)) or ()
    }


def test_page_lists_the_codes_of_the_api() -> None:
    assert listed("Codes of the API") == returned() | EVERYWHERE


def test_page_lists_the_codes_of_the_registry() -> None:
    assert listed("Codes of the registry") == returned("/exsvc/") | {("NOT_FOUND", 404), ("METHOD_NOT_ALLOWED", 405)}


def test_page_lists_the_errors_of_oauth_endpoints() -> None:
    assert listed("Errors of OAuth endpoints") == returned(oauth=True)


def test_every_class_has_a_message() -> None:
    assert [kind for kind in CLASSES if kind.message == errors.ApiError.message] == []

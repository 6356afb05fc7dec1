"""docs/openid.md and docs/architecture.md against the code: error codes, fields of clients, layers."""

import re
import tomllib

from tests.machine.conftest import ROOT
from userflow.accounts.grant_types import GRANT_TYPES
from userflow.clients.serializers import ClientChanges

PAGE = (ROOT / "docs/openid.md").read_text()
ERROR = re.compile(
    r"\b(?:access|account|authorization|consent|expired|insufficient|interaction|invalid|login|slow|unauthorized|unsupported|use)"
    r"_(?:client|denied|down|dpop_nonce|dpop_proof|grant|grant_type|pending|request|request_uri|required|response_type|scope|"
    r"selection_required|target|token)\b"
)


def section(title: str) -> str:
    """Return the text below a heading of the page."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def test_page_explains_every_error_of_the_endpoints() -> None:
    code = [*(ROOT / "openid").rglob("*.py"), *(ROOT / "userflow/clients").rglob("*.py"), ROOT / "userflow/errors.py"]
    raised = {
        name
        for path in code
        for literal in re.findall(r'"([a-z_]+)"', path.read_text())
        for name in ERROR.findall(literal)
        if name == literal
    }
    assert len(raised) >= 15
    # The name of an index.
    assert raised - set(re.findall(r"`([a-z_]+)`", PAGE)) == {"consent_client"}


def test_page_names_fields_that_clients_have() -> None:
    rows = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \|", section("Registering an application"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    fields = {*ClientChanges().fields, "type"}
    # What OpenID Connect does not know, and a logo that no page shows.
    others = {"name", "tags", "scopes", "project_id", "owner_id", "self_registration", "active", "status", "logo_uri"}
    assert named - fields == set()
    assert fields - named - others == set()


def test_page_of_clients_has_every_field() -> None:
    page = (ROOT / "docs/integrating-a-client.md").read_text()
    assert {name for name in ClientChanges().fields if f"`{name}`" not in page} == set()


def test_pages_explain_the_device_grant_once() -> None:
    (urn,) = [name for name in GRANT_TYPES if ":" in name]
    for page in (ROOT / "docs").glob("*.md"):
        assert page.read_text().count(f"`{urn}`") == (1 if page.name == "openid.md" else 0), page.name


def test_architecture_page_has_the_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["name"] == "Apps import downwards only"]
    assert f"`{' > '.join(layers)}`" in (ROOT / "docs/architecture.md").read_text()

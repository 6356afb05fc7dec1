"""Domains of the chosen tenant in the console."""

import secrets

from tests.console.platform.conftest import send
from tests.console.staff import Staff, new_tenant_admin
from tests.userflow.domains.conftest import _dns_server as _dns_server
from tests.userflow.domains.conftest import name_server as name_server
from tests.userflow.domains.dns_server import DnsServer
from tests.world import TestTenant
from userflow.domains.actions import check_domains
from userflow.domains.records import record_name, record_value

LIST = "/admin/platform/domains/"


def test_domain_is_added_verified_and_deleted(head: Staff, home: TestTenant, name_server: DnsServer) -> None:
    domain = f"{secrets.token_hex(5)}.example"
    page = send(head, home, f"{LIST}add/", domain=domain).headers["Location"]
    (row,) = home.api.get("/uflow/federation/domains").json()["domains"]
    shown = head.get(page).text
    assert (record_name(domain) in shown, row["record"]["value"] in shown, "not verified" in shown) == (True,) * 3
    early = send(head, home, f"{page}verify/")
    assert (early.status_code, "TXT record was not found" in early.text) == (400, True)
    name_server.records[row["record"]["name"]] = [row["record"]["value"]]
    assert send(head, home, f"{page}verify/").headers["Location"] == page
    assert "verified" in head.get(LIST).text
    assert "sign-in/" in head.get(page).text
    assert send(head, home, f"{page}sign-in/").headers["Location"] == page
    assert (home.api.get(f"/t/{home.slug}/jwks").status_code, "stop-sign-in/" in head.get(page).text) == (404, True)
    assert send(head, home, f"{page}stop-sign-in/").headers["Location"] == page
    assert home.api.get(f"/t/{home.slug}/jwks").status_code == 200
    name_server.records.clear()
    check_domains(tenant_id=home.id)
    assert "record lost" in head.get(LIST).text
    assert send(head, home, f"{page}delete/").headers["Location"] == LIST
    assert domain not in head.get(LIST).text
    assert head.get(page).status_code == 404
    assert record_value("") not in head.get(LIST).text


def test_add_domain_shows_what_is_wrong(head: Staff, home: TestTenant) -> None:
    response = send(head, home, f"{LIST}add/", domain="co.uk")
    assert (response.status_code, "public suffix" in response.text) == (400, True)


def test_international_domain_is_shown_and_found_in_both_forms(head: Staff, home: TestTenant) -> None:
    mark = secrets.token_hex(4)
    shown = f"bücher-{mark}.example"
    page = send(head, home, f"{LIST}add/", domain=shown).headers["Location"]
    stored = home.api.get("/uflow/federation/domains").json()["domains"][0]["domain"]
    send(head, home, f"{LIST}add/", domain=f"plain-{mark}.example")
    for words in (shown, stored, shown.upper()):
        found = head.get(LIST, q=words).text
        assert (shown in found, stored in found, f"plain-{mark}" in found) == (True, True, False)
    record = head.get(page).text
    assert (f"{shown} <small" in record, stored in record) == (True, True)
    assert "No domain contains this." in head.get(LIST, q="nowhere").text


def test_reader_sees_no_buttons(head: Staff, home: TestTenant) -> None:
    page = send(head, home, f"{LIST}add/", domain=f"{secrets.token_hex(5)}.example").headers["Location"]
    reader = new_tenant_admin(home, "domains:read").sign_in()
    assert ("verify/" in reader.get(page).text, "add/" in reader.get(LIST).text) == (False, False)
    assert reader.get(f"{page}verify/").status_code == 403

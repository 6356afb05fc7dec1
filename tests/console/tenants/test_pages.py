"""The list of tenants and the page of one."""

from collections.abc import Callable
from html import escape
from urllib.parse import urlencode

import pytest

from tests.console.staff import new_operator, new_tenant_admin
from tests.tenants.conftest import said_by
from tests.world import House, statements

LIST = "/admin/tenants/tenant/"


def page(house: House, step: str = "") -> str:
    return f"{LIST}{house.id}/{step or 'change'}/"


def test_operators_find_tenants_by_name_slug_and_id(house: House, other_house: House) -> None:
    operator = new_operator().sign_in()
    for words in (house.made.tenant.name, house.made.tenant.slug, str(house.id)):
        shown = operator.get(LIST, q=words).content.decode()
        assert str(house.id) in shown
        assert str(other_house.id) not in shown


def test_the_list_shows_state_server_schema_size_and_users(new_house: Callable[[], House]) -> None:
    house = new_house()
    house.register()
    said_by("collect_figures", tenant=[house.made.tenant.slug], settled=0)
    shown = new_operator().sign_in().get(LIST, q=house.made.tenant.slug).content.decode()
    for word in ("active", "main", "current", "\N{NO-BREAK SPACE}MB"):
        assert word in shown


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("state=active", True), ("state=suspended", False), ("schema=current", True), ("schema=behind", False)],
)
def test_the_list_is_filtered(house: House, wanted: str, found: bool) -> None:
    name, _, value = wanted.partition("=")
    shown = new_operator().sign_in().get(LIST, q=house.made.tenant.slug, **{name: value}).content.decode()
    assert (str(house.id) in shown) == found


def test_a_tenants_page_shows_what_belongs_to_it(new_house: Callable[[], House]) -> None:
    house = new_house()
    shown = new_operator().sign_in().get(page(house)).content.decode()
    for word in (house.made.tenant.slug, house.admin.username, "main", "Suspend", "Back up", "tenant.created"):
        assert word in shown


def test_what_belongs_to_another_tenant_than_the_chosen_one_is_reached_over_choosing_it(
    new_house: Callable[[], House], other_house: House
) -> None:
    house = new_house()
    operator = new_operator().sign_in().choose(house)
    client = f"/admin/userflow/client/{house.client_id}/change/"
    assert f'href="{client}"' in operator.get(page(house)).text
    operator.choose(other_house)
    assert operator.get(client).status_code == 404
    assert (
        f'href="/admin/inside/?{escape(urlencode({"tenant": house.id, "next": client}))}"'
        in operator.get(page(house)).text
    )
    chosen = operator.post("/admin/inside/", {"tenant": str(house.id), "next": client})
    assert (chosen.headers["Location"], operator.get(client).status_code) == (client, 200)


def test_a_tenant_admin_sees_the_own_tenant_only(house: House, other_house: House) -> None:
    admin = new_tenant_admin(house).sign_in()
    listed = admin.get(LIST).content.decode()
    assert str(house.id) in listed
    assert str(other_house.id) not in listed
    own = admin.get(page(house))
    assert own.status_code == 200
    assert "Suspend" not in own.content.decode()
    for step in ("change", "settings", "suspend", "delete", "backup"):
        assert admin.get(page(other_house, step)).status_code in (403, 404)
    assert admin.get(page(other_house)).status_code == 404


@pytest.mark.parametrize(
    "nobody", ["00000000-0000-0000-0000-000000000000", "nonsense", "5d2c33e5-9a86-4c0e-8d57-c8df6a2f9b11"]
)
def test_a_tenant_that_is_none_is_not_found_in_the_consoles_frame(nobody: str) -> None:
    answer = new_operator().sign_in().get(f"{LIST}{nobody}/change/")
    assert answer.status_code == 404
    assert "To the dashboard" in answer.content.decode()


def test_without_the_permission_there_is_neither_list_nor_page(house: House) -> None:
    operator = new_operator("audit:read").sign_in()
    for path in (LIST, page(house), "/admin/console/job/"):
        answer = operator.get(path)
        assert answer.status_code == 403
        assert "Not allowed" in answer.content.decode()
    assert LIST not in operator.get("/admin/").content.decode()


def test_a_page_shows_only_what_the_roles_allow(house: House) -> None:
    shown = new_operator("tenants:read").sign_in().get(page(house)).content.decode()
    for word in (house.admin.username, "tenant.created", "Suspend", "Provision"):
        assert word not in shown


def test_strangers_are_sent_to_the_sign_in(house: House) -> None:
    from django.test import Client

    for path in (LIST, page(house), page(house, "delete"), f"{LIST}provision/"):
        assert Client().get(path).headers["Location"].startswith("/admin/login/")


def test_a_tenants_page_costs_the_same_whatever_belongs_to_it(new_house: Callable[[], House]) -> None:
    operator, house = new_operator().sign_in(), new_house()
    operator.get(page(house))
    with statements() as few:
        operator.get(page(house))
    for _ in range(3):
        new_tenant_admin(house)
    with statements() as many:
        operator.get(page(house))
    assert many.counts == few.counts
    assert many.counts[0] <= 18
    assert many.counts[1] == 0

"""Choosing the tenant to look into."""

from collections.abc import Callable
from urllib.parse import quote
from uuid import uuid4

import pytest

from tests.console.people.inside import CHOOSER, PEOPLE, USERS, look_into, operator_in, send, text_of, trail
from tests.console.staff import new_operator, new_tenant_admin
from tests.world import House


def test_an_operator_finds_a_tenant_by_name_and_by_slug_and_looks_into_it(house: House, other_house: House) -> None:
    staff = new_operator().sign_in()
    for words in (house.made.tenant.name, house.made.tenant.slug.upper(), house.made.tenant.slug[3:]):
        page = text_of(staff.get(CHOOSER, q=words))
        assert str(house.id) in page
        assert str(other_house.id) not in page
    answer = staff.post(CHOOSER, {"tenant": str(house.id)})
    assert (answer.status_code, answer.headers["Location"]) == (302, USERS)
    assert house.made.tenant.name in text_of(staff.get("/admin/"))


def test_a_link_proposes_a_tenant_and_changes_nothing(house: House) -> None:
    staff = new_operator().sign_in()
    page = text_of(staff.get(CHOOSER, tenant=str(house.id)))
    assert f"Look into {house.made.tenant.name}?" in page
    assert staff.get(USERS).headers["Location"] == f"{CHOOSER}?next={quote(USERS, safe='')}"


def test_after_choosing_the_page_that_was_asked_for_opens(house: House) -> None:
    staff = new_operator().sign_in()
    answer = staff.post(CHOOSER, {"tenant": str(house.id), "next": "/admin/userflow/role/"})
    assert answer.headers["Location"] == "/admin/userflow/role/"


@pytest.mark.parametrize("away", ["https://evil.example/admin/", "//evil.example/admin/", "/docs/", "javascript:1"])
def test_after_choosing_nobody_is_led_out_of_the_console(house: House, away: str) -> None:
    staff = new_operator().sign_in()
    assert staff.post(CHOOSER, {"tenant": str(house.id), "next": away}).headers["Location"] == USERS


def test_those_chosen_last_are_offered_and_one_is_left(house: House, other_house: House) -> None:
    staff = look_into(other_house, operator_in(house))
    page = text_of(staff.get(CHOOSER))
    assert page.index(str(other_house.made.tenant.slug)) < page.index(str(house.made.tenant.slug))
    staff.post(CHOOSER, {"tenant": ""})
    assert staff.get(USERS).status_code == 302
    assert "inside-bar" not in text_of(staff.get("/admin/"))


@pytest.mark.parametrize("odd", ["nonsense", "\x00", "1"])
def test_a_tenant_that_is_not_there_is_not_chosen(odd: str) -> None:
    staff = new_operator().sign_in()
    assert staff.post(CHOOSER, {"tenant": odd}).status_code == 404
    assert staff.post(CHOOSER, {"tenant": str(uuid4())}).status_code == 404
    assert staff.get(CHOOSER, tenant=odd).status_code == 404


def test_a_tenant_admin_has_the_own_tenant_and_no_chooser(house: House, other_house: House) -> None:
    staff = new_tenant_admin(house).sign_in()
    assert house.made.tenant.name in text_of(staff.get(USERS))
    assert f'"{CHOOSER}"' not in text_of(staff.get(USERS))
    assert staff.get(CHOOSER).status_code == 403
    assert staff.post(CHOOSER, {"tenant": str(other_house.id)}).status_code == 403
    assert house.made.tenant.name in text_of(staff.get(USERS))


def test_the_chooser_needs_the_permission_to_read_tenants(house: House) -> None:
    staff = new_operator("endusers:read").sign_in()
    assert staff.get(CHOOSER).status_code == 403
    assert staff.post(CHOOSER, {"tenant": str(house.id)}).status_code == 403


def test_a_form_of_one_tenant_does_nothing_when_another_is_chosen_in_a_second_tab(
    house: House, other_house: House
) -> None:
    person = house.register()
    staff = operator_in(house)
    path = f"{PEOPLE}{person.id}/edit/"
    assert f'name="drawn_for" value="{house.id}"' in text_of(staff.get(path))
    look_into(other_house, staff)
    answer = send(staff, house, path, name="Somebody Else", email=person.email)
    assert answer.status_code == 409
    assert f"Go back to {house.made.tenant.name}" in text_of(answer)
    look_into(house, staff)
    assert "Somebody Else" not in text_of(staff.get(f"{PEOPLE}{person.id}/"))


def test_a_form_that_does_not_say_for_which_tenant_it_was_drawn_does_nothing(house: House) -> None:
    person = house.register()
    staff = new_tenant_admin(house).sign_in()
    for body in ({}, {"drawn_for": ""}, {"drawn_for": "nonsense"}, {"drawn_for": str(uuid4())}):
        assert staff.post(f"{PEOPLE}{person.id}/activity/", body).status_code == 409
    assert not [event for event in trail(house, "end_user.deactivated") if event.target_id == str(person.id)]


def test_who_comes_for_the_first_time_has_something_to_choose_from(new_house: Callable[[], House]) -> None:
    house = new_house()
    shown = new_operator().sign_in().get(CHOOSER).content.decode()
    assert "Newest tenants" in shown
    assert house.made.tenant.slug in shown

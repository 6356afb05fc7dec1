"""`collect_figures`: what the console knows of all tenants without asking their databases."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections
from psycopg import sql

from console.figures.models import PlatformDay, TenantDay, TenantFigures
from tenants import databases
from tenants.capacity import main_server
from tenants.models import TenantDatabase
from tests.tenants.conftest import said_by, straight_to
from tests.world import Api, House, Person

COUNTED = ("sign_ins", "failures", "new_users", "registry_calls", "registry_refused")
NONE = dict.fromkeys(COUNTED, 0)


def collect(*houses: House) -> str:
    return str(said_by("collect_figures", tenant=[house.made.tenant.slug for house in houses], settled=0))


def figures(house: House) -> TenantFigures:
    return TenantFigures.objects.get(pk=house.id)


def today(house: House) -> dict[str, int]:
    """Of a tenant of the test's own: all its days, which are two where midnight has passed meanwhile."""
    days = list(TenantDay.objects.filter(tenant_id=house.id))
    assert days
    return {name: sum(getattr(day, name) for day in days) for name in COUNTED}


def wrong_password(house: House, person: Person) -> None:
    body = {"client_id": str(house.client_id), "email": person.email, "password": "wrong wrong wrong"}
    assert Api().post("/uflow/auth/enduser/login", body).status_code == 401


def test_people_sign_ins_and_sizes_are_counted(new_house: Callable[[], House]) -> None:
    house = new_house()
    person, other = house.register(), house.register()
    house.sign_in(person)
    wrong_password(house, other)
    house.api.post("/uflow/user/enduser/delete", {"tenant_id": str(house.id), "user_id": str(other.id)})
    collect(house)
    found = figures(house)
    assert (found.users, found.active_users, found.protected_users, found.failure) == (2, 1, 0, "")
    assert found.database_bytes > 1_000_000
    assert found.check_ms > 0
    assert today(house) == {**NONE, "sign_ins": 1, "failures": 1, "new_users": 2}


def test_counting_again_counts_nothing_twice_and_what_is_new_once(new_house: Callable[[], House]) -> None:
    house = new_house()
    person = house.register()
    house.sign_in(person)
    collect(house)
    collect(house)
    assert today(house)["sign_ins"] == 1
    house.sign_in(person)
    house.register()
    collect(house)
    assert today(house) == {**NONE, "sign_ins": 2, "new_users": 2}


def test_collections_at_the_same_time_count_nothing_twice(new_house: Callable[[], House]) -> None:
    house = new_house()
    for _ in range(3):
        house.sign_in(house.register())

    def work() -> None:
        collect(house)
        connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert today(house)["sign_ins"] == 3


def test_events_that_may_still_have_forerunners_wait_for_the_next_run(new_house: Callable[[], House]) -> None:
    house = new_house()
    house.sign_in(house.register())
    said_by("collect_figures", tenant=[house.made.tenant.slug], settled=600)
    assert today(house) == {**NONE, "new_users": 1}
    collect(house)
    assert today(house)["sign_ins"] == 1


def test_factors_are_counted_by_method(new_house: Callable[[], House]) -> None:
    from tenants.context import in_tenant
    from userflow.accounts.models import EndUser

    house = new_house()
    people = [house.register() for _ in range(3)]
    with in_tenant(house.id):
        EndUser.objects.filter(pk=people[0].id).update(mfa_methods=["webauthn", "totp"])
        EndUser.objects.filter(pk=people[1].id).update(mfa_methods=["totp"])
    collect(house)
    assert figures(house).factors == {"webauthn": 1, "totp": 2}
    assert figures(house).protected_users == 2


def test_a_failing_tenant_is_noted_and_stops_nobody(
    new_house: Callable[[], House], capsys: pytest.CaptureFixture[str]
) -> None:
    broken, well = new_house(), new_house()
    well.register()
    collect(broken, well)
    before = figures(broken)
    real = TenantDatabase.objects.get(pk=broken.id).name
    TenantDatabase.objects.filter(pk=broken.id).update(name="no_such_database")
    with pytest.raises(SystemExit) as end:
        call_command("collect_figures", tenant=[broken.made.tenant.slug, well.made.tenant.slug], settled=0)
    TenantDatabase.objects.filter(pk=broken.id).update(name=real)
    assert end.value.code == 1
    assert broken.made.tenant.slug in capsys.readouterr().out
    after = figures(broken)
    assert after.failure
    assert (after.collected_at, after.users) == (before.collected_at, before.users)
    assert figures(well).users == 1
    collect(broken)
    assert figures(broken).failure == ""


def test_counting_many_people_may_take_longer_than_a_requests_statement(new_house: Callable[[], House]) -> None:
    house = new_house()
    house.register()
    name = house.made.tenant.database.name
    with databases.maintenance_connection(main_server()) as raw:
        raw.execute(sql.SQL("ALTER DATABASE {} SET statement_timeout = '300ms'").format(sql.Identifier(name)))
        databases.end_sessions(raw, name)
    with straight_to(house.made.tenant) as raw, ThreadPoolExecutor(1) as pool:
        # Millions of people are slow to count; so is one behind a lock.
        with raw.transaction():
            raw.execute("LOCK TABLE userflow_enduser")
            counting = pool.submit(collect, house)
            time.sleep(0.8)
        counting.result()
    assert (figures(house).users, figures(house).failure) == (1, "")


def test_an_unknown_tenant_is_refused() -> None:
    from django.core.management import CommandError

    with pytest.raises(CommandError) as error:
        call_command("collect_figures", tenant=["nobody-of-this-name"])
    assert error.value.returncode == 2


def test_who_was_looked_at_lately_is_left_out_on_request(new_house: Callable[[], House]) -> None:
    house = new_house()
    slug = house.made.tenant.slug
    assert said_by("collect_figures", tenant=[slug], older_than=3600).startswith("1/1")
    assert "0 up to date" in said_by("collect_figures", tenant=[slug], older_than=3600)


def test_registry_calls_and_refusals_are_counted_by_tenant(new_house: Callable[[], House], operator: Api) -> None:
    house, other = new_house(), new_house()
    answers = [house.api.get("/exsvc/api/v1/services").status_code for _ in range(103)]
    other.api.get("/exsvc/api/v1/services")
    collect(house, other)
    day = today(house)
    # Pending errors are written together with the next call.
    assert (day["registry_calls"], day["registry_refused"]) == (103, answers.count(429))
    assert today(other)["registry_calls"] == 1
    collect(house, other)
    assert today(house)["registry_calls"] == 103


def test_the_platforms_day_is_the_sum_of_its_tenants(new_house: Callable[[], House]) -> None:
    for house in (new_house(), new_house()):
        house.sign_in(house.register())
        collect(house)
    last = PlatformDay.objects.latest("day")
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(sign_ins), sum(new_users) FROM console_tenantday WHERE day = %s", [last.day])
        wanted: Any = cursor.fetchone()
    assert (last.sign_ins, last.new_users) == wanted


def test_figures_go_with_their_tenant(new_house: Callable[[], House], operator: Api) -> None:
    house = new_house()
    house.register()
    collect(house)
    answer = operator.delete(f"/uflow/admin/tenants/{house.id}", {"confirm": house.made.tenant.slug})
    assert answer.status_code == 200
    assert not TenantFigures.objects.filter(pk=house.id).exists()
    assert not TenantDay.objects.filter(tenant_id=house.id).exists()

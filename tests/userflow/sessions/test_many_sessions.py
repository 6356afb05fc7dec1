"""Many sessions end at once: a statement takes 65,535 parameters, and its time is limited."""

from collections.abc import Callable

from django.db import connections

from identity_platform.postgresql.statement_timeout import no_timeout
from tenants.entering.context import in_tenant, tenant_atomic
from tests.openid.logout_scene import Scene, scene_of, succeeds
from tests.world import Api, TestTenant
from userflow.accounts.session_models import EndUserSession
from userflow.sessions.ending import AT_ONCE


def multiply(scene: Scene, number: int, **changed: object) -> None:
    """Give the application so many sessions like its own."""
    table = EndUserSession._meta.db_table
    stated = {"id": "gen_random_uuid()", **changed}
    names = [field.column for field in EndUserSession._meta.concrete_fields]
    values = ", ".join(str(stated.get(name, name)) for name in names)
    with in_tenant(scene.tenant.id), tenant_atomic(), no_timeout(), connections["tenant"].cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 0")
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {table}, generate_series(1, %s) "
            "WHERE id = %s",
            [number, scene.child().pk],
        )


def active(scene: Scene) -> int:
    with in_tenant(scene.tenant.id):
        return EndUserSession._default_manager.filter(client_id=scene.client_id, ended_at=None).count()


def test_withdrawal_of_first_party_ends_many_sessions(new_tenant: Callable[[], TestTenant]) -> None:
    scene = scene_of(new_tenant(), None)
    multiply(scene, 66_000)
    succeeds(scene.tenant.api.patch(scene.client_path, {"first_party": False}))
    assert active(scene) == 0


def test_tenant_with_many_sessions_is_resumed(new_tenant: Callable[[], TestTenant], operator: Api) -> None:
    scene = scene_of(new_tenant(), None)
    multiply(scene, 2 * AT_ONCE, backchannel_logout="true")
    path = f"/uflow/admin/tenants/{scene.tenant.id}"
    succeeds(operator.patch(path, {"status": "suspended"}))
    succeeds(operator.patch(path, {"status": "active"}))
    assert active(scene) == 1

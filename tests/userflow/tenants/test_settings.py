"""Settings of a tenant: the API document, the documentation and what applies by default."""

from typing import Any

import yaml
from django.conf import settings

from tenants.settings import SETTINGS
from tests.world import Api


def settings_schema(operation: str) -> dict[str, Any]:
    document = yaml.safe_load(Api().get("/schema/").content)
    return dict(document["components"]["schemas"][operation]["properties"]["settings"])


def test_schema_lists_each_setting_with_type_and_meaning() -> None:
    for component in ("TenantInRequest", "PatchedTenantChangesRequest", "TenantOut"):
        found = settings_schema(component)["properties"]
        assert list(found) == list(SETTINGS)
        assert [name for name, shape in found.items() if not (shape["type"] and shape["description"])] == []
    assert found["enrollment_mode"]["enum"] == ["window", "ticket", "bearer"]
    assert found["access_token_seconds"]["default"] == settings.ACCESS_TOKEN_SECONDS

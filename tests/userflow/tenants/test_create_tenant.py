"""`create_tenant` tells by its exit code whether anything was tried."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.world import House


def test_a_taken_slug_is_refused_before_anything_is_made(house: House) -> None:
    with pytest.raises(CommandError, match="slug") as refused:
        call_command("create_tenant", "Other", "--slug", house.made.tenant.slug, stdout=StringIO())
    assert refused.value.returncode == 2

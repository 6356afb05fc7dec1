"""Account pre-hijacking: classes of Sudhodanan and Paverd (USENIX Security 2022), in every tenant, for every victim.

The attacker comes first and prepares an account under the victim's address. The victim comes later. Then nothing that the
attacker has kept works, and the victim signs in.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.userflow.directory.entra import Entra
from tests.userflow.prehijacking.attacker import CLASSES, Attacker, non_verifying_provider, pending_change_to
from tests.userflow.prehijacking.victim import STEPS, Victim
from tests.world import TestTenant, build_tenant
from userflow.mail_delivery import background

EXCLUDED = [
    # A record of another provider has no password that a mail could reset after verification.
    (non_verifying_provider, Victim.confirms_foreign_registration),
    # The victim confirms the attacker's change of address. The link that undoes the change stays with the attacker's old
    # address, as it protects the owner of a stolen account. The mail says who made the change.
    (pending_change_to, Victim.confirms_foreign_registration),
]
CELLS = [
    pytest.param(prepare, step, id=f"{prepare.__name__}-{step.__name__}")
    for prepare in CLASSES
    for step in STEPS
    if (prepare, step) not in EXCLUDED
]


@pytest.fixture(scope="module")
def tenants_by_policy(django_db_setup: None, django_db_blocker: Any) -> dict[str, TestTenant]:
    """Return a tenant for each value of `email_verification`."""
    with django_db_blocker.unblock():
        made = {policy: build_tenant("hijack") for policy in ("off", "required")}
        path = f"/uflow/admin/tenants/{made['required'].id}/settings"
        response = made["required"].api.patch(path, {"settings": {"email_verification": "required"}})
        assert response.status_code == 200, response.content
        return made


@pytest.fixture
def entra(settings: Any) -> Iterator[Entra]:
    """Return the victim's directory."""
    directory = Entra()
    settings.DIRECTORY_CLOUDS = {"standin": (directory.base, directory.base)}
    settings.DIRECTORIES_PER_TENANT = 1000
    yield directory
    directory.end()


@pytest.mark.parametrize(("prepare", "step"), CELLS)
@pytest.mark.parametrize("policy", ["off", "required"])
def test_preparations_end_when_the_owner_arrives(
    tenants_by_policy: dict[str, TestTenant],
    entra: Entra,
    policy: str,
    prepare: Callable[[Attacker], None],
    step: Callable[[Victim], None],
) -> None:
    tenant = tenants_by_policy[policy]
    tenant.renew_token()
    victim = Victim(tenant, entra)
    attacker = Attacker(tenant, victim.email)
    prepare(attacker)
    # Two threads send mails: one of the preparation must not overtake that of the owner.
    assert background.settle(60)
    step(victim)
    first = victim.signs_in()
    assert (first.status_code, first.json().get("mfa_required")) == (200, False), first.content
    record = victim.record()
    assert attacker.successes(record["id"]) == []
    assert victim.record()["mfa_methods"] == []
    assert victim.record()["provider"] in ("local", "entra_id")
    again = victim.signs_in()
    assert (again.status_code, again.json().get("mfa_required")) == (200, False), again.content

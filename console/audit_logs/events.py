"""Audit events as the console shows them: names instead of ids, actions in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import orjson
from django.utils.translation import gettext_lazy as _

from console.audit_logs.action_labels import OUTCOMES, label_of
from console.audit_logs.names import DETAILS, IN_PLATFORM, IN_TENANT, Names
from console.frame.access import Context, Staff
from console.frame.records import Cell, Table, Text, Tone, cell_of, mono
from console.metrics.tables import without_operator
from userflow.accounts.principals import OPERATOR
from userflow.audit.actions import PLATFORM, Filters, page_of_events

SHOWN_OF_ONE: Final = 10
_TONES: Final = {"success": Tone.GOOD, "refused": Tone.WARNING, "failed": Tone.BAD}


@dataclass(frozen=True, slots=True)
class ShownEvent:
    """One event. The kinds say what actor and target are; of an actor without an id there is only the kind."""

    at: datetime
    action: str
    code: str
    outcome: Cell
    actor: Cell | None
    actor_kind: Text
    target: Cell | None
    target_kind: Text
    tenant: Cell | None
    address: Cell
    # Label and value; shown on demand.
    facts: Sequence[tuple[Text, Cell]]


def described(
    rows: Sequence[Context], *, staff: Staff, in_tenant: bool, open_tenant: UUID | None, with_tenant: bool = False
) -> list[ShownEvent]:
    """Return the events with names, as far as the reader may see them, in one statement for each kind of object.

    `in_tenant`: they are from the own log of the entered tenant, else from the platform's. `open_tenant` is the tenant whose
    pages the reader can open. `with_tenant` names the tenant of each.
    """
    names = Names(staff, IN_TENANT if in_tenant else IN_PLATFORM, open_tenant)
    tenants = [("tenant", row["tenant_id"] or "") for row in rows] if with_tenant else []
    mentioned = [each for row in rows for each in _mentioned(row)]
    names.look_up((kind, str(key)) for kind, key in [*mentioned, *tenants])
    return [_shown(row, names, with_tenant) for row in rows]


def _mentioned(row: Context) -> list[tuple[str, object]]:
    """Return every object that the event mentions, by kind and id."""
    details = row["details"]
    assert isinstance(details, dict)
    mentioned_in_details = [
        (DETAILS[name], value) for name, value in details.items() if name in DETAILS and isinstance(value, str)
    ]
    return [
        (str(row["actor_kind"]), row["actor_id"]),
        (str(row["target_kind"]), row["target_id"]),
        *mentioned_in_details,
    ]


def _shown(row: Context, names: Names, with_tenant: bool) -> ShownEvent:
    at, outcome = row["at"], str(row["outcome"])
    assert isinstance(at, datetime)
    actor, target = (str(row["actor_kind"]), str(row["actor_id"])), (str(row["target_kind"]), str(row["target_id"]))
    # An event about a tenant itself names it once.
    tenant = str(row["tenant_id"]) if with_tenant and row["tenant_id"] and str(row["tenant_id"]) != target[1] else ""
    return ShownEvent(
        at=at,
        action=label_of(str(row["action"])),
        code=str(row["action"]),
        outcome=Cell(OUTCOMES.get(outcome, outcome), tone=_TONES.get(outcome, Tone.WARNING)),
        actor=names.cell(*actor) if actor[1] or actor[0] == OPERATOR else None,
        actor_kind=names.label(*actor),
        target=names.cell(*target) if target[1] else None,
        target_kind=names.label(*target),
        tenant=names.cell("tenant", tenant) if tenant else None,
        address=mono(without_operator(row, names.staff)["address"]),
        facts=_facts(row, names),
    )


def _facts(row: Context, names: Names) -> list[tuple[Text, Cell]]:
    """Return what an event shows on demand."""
    details = row["details"]
    assert isinstance(details, dict)
    shown = without_operator(row, names.staff)
    facts: list[tuple[Text, Cell]] = [
        (_("Event"), mono(row["id"])),
        (_("Action"), mono(row["action"])),
        (_("Actor id"), mono(shown["actor_id"])),
        (_("Target id"), mono(row["target_id"])),
        (_("IP address"), mono(shown["address"])),
        (_("Request id"), mono(row["request_id"])),
    ]
    for name, value in details.items():
        kind = DETAILS.get(name)
        facts.append((name, names.cell(kind, value) if kind and isinstance(value, str) else _plain(value)))
    return [(label, cell) for label, cell in facts if cell.text not in ("", None)]


def _plain(value: object) -> Cell:
    return mono(orjson.dumps(value).decode()) if isinstance(value, dict) else cell_of(value)


def of_target(target_id: UUID, *, staff: Staff) -> Table:
    """Return the newest events of the platform's log about one object."""
    tenant_id = staff.user.tenant_id
    filters = Filters(target=str(target_id))
    rows, _more = page_of_events(
        tenant_id=tenant_id, trail=PLATFORM, limit=SHOWN_OF_ONE, filters=filters, to_operator=staff.is_operator
    )
    names = Names(staff, IN_PLATFORM, tenant_id)
    names.look_up((str(row["actor_kind"]), str(row["actor_id"])) for row in rows)
    return Table(
        title=_("Latest events"),
        headers=(_("Time (UTC)"), _("Action"), _("Outcome"), _("Actor"), _("IP address")),
        rows=[
            (
                f"{event.at:%Y-%m-%d %H:%M:%S}",
                event.action,
                event.outcome,
                event.actor or event.actor_kind,
                event.address,
            )
            for event in (_shown(row, names, with_tenant=False) for row in rows)
        ],
        empty=_("No events yet."),
    )

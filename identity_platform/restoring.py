"""What a restored table does: restoring brings data back, never authority.

Each model of a tenant's database declares one of these as `after_restore`. Restoring follows it before the restored tenant
opens; a test walks all models.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Revocation:
    """One way in which rows lose authority. A trigger writes each case to the journal, whichever statement causes it.

    `columns` is SQL: what identifies the revoked authority, never reused for another grant. The trigger and the comparison
    evaluate the same text. `condition` limits it to rows that have the authority. Restored rows that the journal names are
    passed to the model's class method `ending`; without one they are deleted. It may return the numbers of rows of other kinds
    that it has ended with them.
    """

    kind: str
    columns: str = "id"
    condition: str = "true"
    ending: str = ""
    # What to read instead of the model's table: one row for each authority.
    source: str = ""
    # The column that says until when a row has its authority, if a revocation can take effect later than it is written.
    until: str = ""


@dataclass(frozen=True, slots=True)
class Journaled:
    """What was revoked is in the journal, and is revoked again."""

    revocations: tuple[Revocation, ...]


@dataclass(frozen=True, slots=True)
class Closed:
    """All rows lose their authority, by the class method `close_all(moment)`: revocations are too frequent to journal."""


@dataclass(frozen=True, slots=True)
class NoAuthority:
    """The rows allow nothing, for this reason."""

    reason: str


AfterRestore = Journaled | Closed | NoAuthority


@dataclass(frozen=True, slots=True)
class RestoredRow:
    """A restored row whose authority ends. `subject` has the values of the revocation's columns."""

    tenant_id: UUID
    pk: Any
    subject: str
    ends_at: datetime

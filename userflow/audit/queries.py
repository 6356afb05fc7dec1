"""Where an audit log has events of a given time: ids follow the time, and only the ids have an index."""

from datetime import datetime, timedelta
from typing import Final

from django.db.models import BigIntegerField, Model
from django.db.models.expressions import RawSQL

# An event's time is the start of its transaction and its id the moment of its INSERT, so the order of the two differs by the
# length of a transaction. No transaction that writes events lasts longer than this.
LONGEST_TRANSACTION: Final = timedelta(hours=1)

# Halves the range of ids until it is empty: some thirty look-ups of one row, however long the log is.
_FIRST_ID = """(
WITH RECURSIVE search (low, high) AS (
  SELECT min(id), max(id) + 1 FROM {events}
  UNION ALL
  SELECT CASE WHEN probe.at < %s::timestamptz + %s THEN probe.id + 1 ELSE low END,
         CASE WHEN probe.at < %s::timestamptz + %s THEN high ELSE (low + high) / 2 END
  FROM search
  CROSS JOIN LATERAL (SELECT id, at FROM {events} WHERE id >= (low + high) / 2 ORDER BY id LIMIT 1) probe
  WHERE low < high
)
SELECT max(low) FROM search
)"""


def first_id_at(events: type[Model], moment: datetime, *, slack: timedelta) -> RawSQL:
    """Return an expression: about the lowest id of an event of that moment plus `slack`, or later."""
    sql = _FIRST_ID.format(events=events._meta.db_table)
    # PostgreSQL adds the slack: its times reach further than Python's.
    return RawSQL(sql, [moment, slack, moment, slack], output_field=BigIntegerField())  # noqa: S611 - a constant and a table

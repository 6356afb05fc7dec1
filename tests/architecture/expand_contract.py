"""Which migrations the release before can live with.

In a rolling upgrade the new schema is there before the new code, so a migration may only add. What it removes or narrows
must be unused since an earlier release, which the migration names: `contracts = "1.0"`.
"""

import re
from collections.abc import Iterator

from django.db.migrations import operations
from django.db.migrations.migration import Migration
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import Field, ManyToManyField, UniqueConstraint
from django.db.models.fields import NOT_PROVIDED

# These change no column that exists, and reject no row.
_HARMLESS = (
    operations.CreateModel,
    operations.AddIndex,
    operations.RemoveIndex,
    operations.RenameIndex,
    operations.RemoveConstraint,
    operations.AlterModelOptions,
    operations.AlterModelManagers,
    operations.AlterModelTableComment,
    operations.RunPython,
)
# What may differ between a column and itself. The code of a release has its own copy of all but the last.
_FREE = {
    "verbose_name",
    "help_text",
    "choices",
    "default",
    "blank",
    "editable",
    "validators",
    "error_messages",
    "db_default",
}
_NARROWING = re.compile(
    r"\b(DROP\s+(TABLE|COLUMN|DEFAULT)|RENAME|SET\s+NOT\s+NULL|ADD\s+CONSTRAINT|CREATE\s+UNIQUE\s+INDEX|TRUNCATE"
    r"|SET\s+DATA\s+TYPE|ALTER\s+COLUMN\s+\S+\s+TYPE)\b",
    re.IGNORECASE,
)


def breaks(migration: Migration, before: ProjectState, new_tables: set[str]) -> Iterator[str]:
    """Yield what the release before cannot live with. `before` is the state before the migration.

    `new_tables` has the names of models (`app_label.model`, lower case) that the release before does not know; those that the
    migration creates are added to it, and new columns that can be null (`app_label.model.column`).
    """
    state = before.clone()
    for operation in migration.operations:
        yield from _breaks(operation, migration.app_label, state, new_tables)
        operation.state_forwards(migration.app_label, state)


def _breaks(operation: Operation, app: str, state: ProjectState, new_tables: set[str]) -> Iterator[str]:
    if isinstance(operation, operations.CreateModel):
        new_tables.add(f"{app}.{operation.name_lower}")
    model = str(getattr(operation, "model_name_lower", getattr(operation, "name_lower", "")))
    if isinstance(operation, _HARMLESS) or f"{app}.{model}" in new_tables:
        return
    match operation:
        case operations.SeparateDatabaseAndState():
            for inner in operation.database_operations:
                yield from _breaks(inner, app, state, new_tables)
        case operations.RunSQL():
            for statement in operation.sql if isinstance(operation.sql, list | tuple) else [operation.sql]:
                text = statement if isinstance(statement, str) else str(statement[0])
                if found := _NARROWING.search(text):
                    yield f"{found[0]} in SQL"
        case operations.AddField():
            field = operation.field
            if not (field.null or field.db_default is not NOT_PROVIDED or isinstance(field, ManyToManyField)):
                yield f"{model}.{operation.name} is required and has no db_default"
            if field.null:
                new_tables.add(f"{app}.{model}.{operation.name}")
        case operations.AddConstraint(constraint=UniqueConstraint(nulls_distinct=None) as unique) if any(
            f"{app}.{model}.{name}" in new_tables for name in unique.fields
        ):
            # The release before leaves the new column empty in the rows that it writes.
            return
        case operations.AlterField():
            old = state.models[app, model].fields[operation.name]
            yield from (f"{model}.{operation.name} {what}" for what in _narrowed(old, operation.field))
        case _:
            yield operation.describe()


def _narrowed(old: "Field[object, object]", new: "Field[object, object]") -> Iterator[str]:
    (_, kind, _, before), (_, new_kind, _, after) = old.deconstruct(), new.deconstruct()
    if kind != new_kind:
        yield f"becomes a {new_kind.rpartition('.')[2]}"
        return
    changed = {name for name in {*before, *after} - _FREE if before.get(name) != after.get(name)}
    if "null" in changed and new.null:
        changed.discard("null")
    lengths = before.get("max_length"), after.get("max_length")
    if lengths[1] is None or (lengths[0] is not None and lengths[1] > lengths[0]):
        changed.discard("max_length")
    if "db_index" in changed:
        changed.discard("db_index")
    if changed:
        yield f"changes {', '.join(sorted(changed))}"

"""New migrations: the release before can live with them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ModelState, ProjectState

from tests.architecture.expand_contract import breaks

# Those of the release before: 1.1. Replaced by the next release.
RELEASED = frozenset((Path(__file__).parent / "released_migrations.txt").read_text().split())
CHANGELOG = (settings.BASE_DIR / "CHANGELOG.md").read_text()


def of_this_project(label: str) -> bool:
    path = Path(apps.get_app_config(label).path)
    return path.is_relative_to(settings.BASE_DIR) and ".venv" not in path.parts


def unreleased() -> Iterator[tuple[migrations.Migration, ProjectState]]:
    """Yield the migrations since the release before, each with the state before it, in order."""
    loader = MigrationLoader(None)
    plan = dict.fromkeys(key for leaf in loader.graph.leaf_nodes() for key in loader.graph.forwards_plan(leaf))
    for key in plan:
        if of_this_project(key[0]) and ".".join(key) not in RELEASED:
            yield loader.graph.nodes[key], loader.project_state(key, at_end=False)


def test_release_before_can_live_with_new_migrations() -> None:
    new_tables: set[str] = set()
    broken = {}
    for migration, before in unreleased():
        found = list(breaks(migration, before, new_tables))
        contracts = getattr(migration, "contracts", "")
        if found and not (contracts and f"## {contracts}" in CHANGELOG):
            broken[f"{migration.app_label}.{migration.name}"] = found
    assert broken == {}


def test_released_migrations_still_exist() -> None:
    existing = {".".join(key) for key in MigrationLoader(None).disk_migrations}
    assert existing >= RELEASED
    assert len(RELEASED) > 40


def state() -> ProjectState:
    """A model with a text of 20 characters and an optional number."""
    fields: list[tuple[str, models.Field[object, object]]] = [
        ("id", models.AutoField(primary_key=True)),
        ("text", models.CharField(max_length=20)),
        ("number", models.IntegerField(null=True)),
    ]
    found = ProjectState()
    found.add_model(ModelState("shop", "Item", fields))
    return found


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (migrations.RemoveField("item", "text"), "Remove field text"),
        (migrations.DeleteModel("Item"), "Delete model Item"),
        (migrations.RenameField("item", "text", "name"), "Rename field text"),
        (migrations.RenameModel("Item", "Thing"), "Rename model Item"),
        (migrations.AlterModelTable("Item", "things"), "Rename table"),
        (migrations.AddField("item", "size", models.IntegerField(default=1)), "item.size is required"),
        (migrations.AlterField("item", "text", models.CharField(max_length=10)), "item.text changes max_length"),
        (migrations.AlterField("item", "text", models.TextField()), "item.text becomes a TextField"),
        (migrations.AlterField("item", "number", models.IntegerField()), "item.number changes null"),
        (
            migrations.AlterField("item", "text", models.CharField(max_length=20, unique=True)),
            "item.text changes unique",
        ),
        (
            migrations.AddConstraint("item", models.UniqueConstraint(fields=["text"], name="one_text")),
            "Create constraint one_text",
        ),
        (migrations.RunSQL("ALTER TABLE shop_item ALTER COLUMN text SET NOT NULL"), "SET NOT NULL in SQL"),
        (migrations.RunSQL(["SELECT 1", ("DROP TABLE shop_item", None)]), "DROP TABLE in SQL"),
        (
            migrations.SeparateDatabaseAndState(database_operations=[migrations.RemoveField("item", "text")]),
            "Remove field text",
        ),
    ],
)
def test_narrowing_is_found(operation: Operation, said: str) -> None:
    migration = migrations.Migration("0002", "shop")
    migration.operations = [operation]
    (found,) = breaks(migration, state(), set())
    assert found.startswith(said)


@pytest.mark.parametrize(
    "operation",
    [
        migrations.CreateModel("Other", [("id", models.AutoField(primary_key=True))]),
        migrations.AddField("item", "size", models.IntegerField(null=True)),
        migrations.AddField("item", "size", models.IntegerField(default=1, db_default=1)),
        migrations.AlterField("item", "text", models.CharField(max_length=30, help_text="New.")),
        migrations.AlterField("item", "text", models.CharField(max_length=20, null=True)),
        migrations.AddIndex("item", models.Index(fields=["text"], name="item_text")),
        migrations.RunSQL("CREATE INDEX CONCURRENTLY item_text ON shop_item (text)"),
    ],
)
def test_additions_are_allowed(operation: Operation) -> None:
    migration = migrations.Migration("0002", "shop")
    migration.operations = [operation]
    assert list(breaks(migration, state(), set())) == []


def test_new_column_may_be_unique() -> None:
    migration = migrations.Migration("0002", "shop")
    unique = migrations.AddConstraint("item", models.UniqueConstraint(fields=["code"], name="one_code"))
    migration.operations = [migrations.AddField("item", "code", models.IntegerField(null=True)), unique]
    assert list(breaks(migration, state(), set())) == []
    required = migrations.AddField("item", "code", models.IntegerField(default=1, db_default=1))
    migration.operations = [required, unique]
    assert list(breaks(migration, state(), set())) == ["Create constraint one_code on model item"]


def test_new_table_may_change_before_its_release() -> None:
    migration = migrations.Migration("0002", "shop")
    fields: list[tuple[str, models.Field[object, object]]] = [
        ("id", models.AutoField(primary_key=True)),
        ("text", models.TextField()),
    ]
    migration.operations = [migrations.CreateModel("Other", fields), migrations.RemoveField("other", "text")]
    assert list(breaks(migration, state(), set())) == []

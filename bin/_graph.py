"""Draw the import graph of the code into docs/architecture.md as a Mermaid diagram. With --check, only compare.

An arrow points from the importing package to the imported one. An import that also follows from a chain of arrows is not drawn.
"""

import sys
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- import graph: drawn by bin/graph -->\n", "<!-- import graph: end -->\n"
LAYERED = "userflow"
NOT_ROOMS = {"management", "migrations"}

Edges = dict[str, set[str]]


def main(*, check: bool) -> int:
    """Return the exit code: 1 if the page is out of date and was only compared."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    drawn = f"{before}{BEGIN}{diagram()}{END}{after}"
    if drawn == page:
        return 0
    if check:
        print("The import graph in docs/architecture.md is out of date. Run bin/graph.", file=sys.stderr)
        return 1
    PAGE.write_text(drawn, encoding="utf-8")
    return 0


def diagram() -> str:
    """Return the fenced Mermaid block."""
    sys.path.insert(0, str(ROOT))
    apps = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
    graph = grimp.build_graph(*apps, cache_dir=None)
    between_apps: Edges = {app: set() for app in apps}
    rooms = {
        module.split(".")[1] for module in graph.modules if module.startswith(f"{LAYERED}.") and module.count(".") > 1
    }
    between_rooms: Edges = {room: set() for room in rooms - NOT_ROOMS}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            importer, target = module.split("."), imported.split(".")
            if importer[0] != target[0]:
                between_apps[importer[0]].add(target[0])
            elif importer[0] == LAYERED and {*importer[1:2], *target[1:2]} <= between_rooms.keys():
                between_rooms[importer[1]].add(target[1])
    lines = [
        "```mermaid",
        "flowchart TD",
        *_arrows(between_apps, ""),
        f"  subgraph {LAYERED}",
        *_arrows(between_rooms, f"{LAYERED}."),
        "  end",
        "```",
    ]
    return "\n".join(lines) + "\n"


def _arrows(edges: Edges, prefix: str) -> list[str]:
    """Return a line for each import that does not follow from others."""
    indent = "    " if prefix else "  "
    lines = []
    for name in sorted(edges):
        direct = edges[name] - {name}
        indirect = set().union(*(_reachable(other, edges) - {other} for other in direct))
        lines += [f"{indent}{_node(prefix, name)} --> {_node(prefix, other)}" for other in sorted(direct - indirect)]
    return lines


def _node(prefix: str, name: str) -> str:
    return f"{prefix}{name}[{name}]" if prefix else name


def _reachable(start: str, edges: Edges) -> set[str]:
    found, pending = {start}, [start]
    while pending:
        for other in edges[pending.pop()] - found:
            found.add(other)
            pending.append(other)
    return found


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))

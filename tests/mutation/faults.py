"""Faults of one place that a reviewer could miss: a filter dropped, a condition negated, a check removed, a limit moved by one.

Libraries for this exist (mutmut, cosmic-ray). Their operators change constants, comparisons and arithmetic; none drops a filter
of a query or the call of a check, which are the faults that matter where tenants and users are kept apart.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, type[ast.cmpop]]]] = {
    ast.Lt: ("<=", ast.LtE),
    ast.LtE: ("<", ast.Lt),
    ast.Gt: (">=", ast.GtE),
    ast.GtE: (">", ast.Gt),
    ast.Eq: ("!=", ast.NotEq),
    ast.NotEq: ("==", ast.Eq),
    ast.Is: ("is not", ast.IsNot),
    ast.IsNot: ("is", ast.Is),
    ast.In: ("not in", ast.NotIn),
    ast.NotIn: ("in", ast.In),
}
_FILTERS: Final = frozenset({"filter", "exclude"})
# Calls whose loss no behavior shows.
_SILENT: Final = frozenset({"debug", "info", "warning", "error", "exception", "setdefault"})


@dataclass(frozen=True)
class Fault:
    """One changed place of a file."""

    file: str
    line: int
    kind: str
    before: str
    after: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.kind}: {_one_line(self.before)} -> {_one_line(self.after)}"

    def apply(self, source: bytes) -> bytes:
        """Return the source with the fault."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def faults_in(root: Path, file: str) -> list[Fault]:
    """Return all faults of a file, in the order of its lines."""
    source = (root / file).read_bytes()
    tree = ast.parse(source)
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def fault(node: ast.expr | ast.stmt, kind: str, after: str) -> Fault:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = lines[node.lineno - 1] + node.col_offset
        end = lines[node.end_lineno - 1] + node.end_col_offset
        return Fault(file, node.lineno, kind, source[start:end].decode(), after, start, end)

    found = [made for node in ast.walk(tree) for made in _faults_of(node, fault)]
    return sorted(
        {each.start * 1000 + number % 1000: each for number, each in enumerate(found)}.values(), key=_position
    )


def _position(fault: Fault) -> tuple[int, str, str]:
    return fault.start, fault.kind, fault.after


def _faults_of(node: ast.AST, fault: Callable[[ast.expr | ast.stmt, str, str], Fault]) -> Iterator[Fault]:
    text = ast.unparse
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=args, keywords=keywords) if name in _FILTERS:
            yield fault(node, "drop a filter", f"{text(value)}.all()")
            if len(args) + len(keywords) > 1:
                for keyword in keywords:
                    rest = [*map(text, args), *(text(each) for each in keywords if each is not keyword)]
                    yield fault(node, "drop a condition", f"{text(value)}.{name}({', '.join(rest)})")
        case ast.If(test=test) | ast.IfExp(test=test) if not _is_typing(test):
            yield fault(test, "negate a condition", f"not ({text(test)})")
        case ast.Expr(value=ast.Call(func=function)) if text(function).rpartition(".")[2] not in _SILENT:
            yield fault(node, "remove a call", "pass")
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _COMPARISONS:
            sign = _COMPARISONS[type(operator)][0]
            yield fault(node, "change a comparison", f"({text(left)} {sign} {text(right)})")
        case ast.BoolOp(values=values):
            word = " and " if isinstance(node.op, ast.And) else " or "
            for left_out in values:
                rest = [f"({text(each)})" for each in values if each is not left_out]
                yield fault(node, "drop an operand", f"({word.join(rest)})")
        case _:
            return


def _is_typing(test: ast.expr) -> bool:
    return "TYPE_CHECKING" in ast.unparse(test)


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 120 else f"{flat[:117]}..."

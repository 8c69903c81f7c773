"""The syntax tree of a ``.naut`` file, without resolved names and without types.

Abstract grammar (``grammar/naut.lark`` is the concrete one)::

    file    := statement*
    statement := Dim | Const | TensorDecl | ScalarDecl | Function | Include | Define | Recur | Assume
    Recur   := Define+                  -- definitions that may read earlier values of each other
    expr    := Num | Name | Index | Call | BoundCall | Unary | Chain | Compare | Ternary
    item    := expr [: expr [.. expr]]  -- an index, or a binder with its range

Nodes are frozen and have spans.  ``depth`` is the height of the tree below a node; a check rejects deep nesting
before any recursive function runs.  A chain of one precedence level (``a + b - c``) is one flat node, so its length
adds no depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from typing import TypeAlias

from nautilus.core.records import dataclass
from nautilus.core.source import Source, Span


@dataclass(frozen=True, slots=True)
class Num:
    """``4096``, ``1.5``, ``inf``, ``true``."""

    value: int | float | bool
    span: Span
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Name:
    """An index variable, dim, const, scalar, function argument, or a tensor of rank 0."""

    id: str
    span: Span
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Index:
    """``Q[b, h // G, i]``."""

    name: Name
    items: tuple[Expr, ...]
    span: Span
    depth: int


@dataclass(frozen=True, slots=True)
class Call:
    """``exp(x)``, ``min(a, b)``, ``f16(x)``."""

    name: Name
    args: tuple[Expr, ...]
    span: Span
    depth: int


@dataclass(frozen=True, slots=True)
class Binder:
    """``j`` or ``j: N`` in brackets."""

    name: str
    range: Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Within:
    """``lo <= index < hi``, the condition that the range ``index: lo .. hi`` states; ``span`` is the range."""

    index: Name
    lo: Expr
    hi: Expr
    span: Span
    depth: int


@dataclass(frozen=True, slots=True)
class BoundCall:
    """``sum[i, j | c](e)``: a reduction, or a call of a function that takes index variables."""

    name: Name
    binders: tuple[Binder, ...]
    cond: Expr | None
    args: tuple[Expr, ...]
    span: Span
    depth: int


@dataclass(frozen=True, slots=True)
class Unary:
    """``-x``, ``+x``, ``not x``."""

    op: str
    arg: Expr
    span: Span
    depth: int


@dataclass(frozen=True, slots=True)
class Chain:
    """Operands of one precedence level, left to right: ``args[0] ops[0] args[1] ops[1] ...``."""

    ops: tuple[str, ...]
    args: tuple[Expr, ...]
    span: Span
    depth: int


@dataclass(frozen=True, slots=True)
class Compare:
    """``a < b <= c``: each neighbouring pair compared, all must hold."""

    ops: tuple[str, ...]
    args: tuple[Expr, ...]
    span: Span
    depth: int


@dataclass(frozen=True, slots=True)
class Ternary:
    """``then if test else other``."""

    then: Expr
    test: Expr
    other: Expr
    span: Span
    depth: int


Expr: TypeAlias = Num | Name | Index | Call | BoundCall | Unary | Chain | Compare | Within | Ternary


@dataclass(frozen=True, slots=True)
class Dim:
    """``dim N``, ``dim N = e``, ``dim N = runtime <= e``; with ``device``, ``dim N = device <= e``."""

    name: Name
    value: Expr | None
    runtime: bool
    bound: Expr | None
    span: Span
    device: bool | None = None


@dataclass(frozen=True, slots=True)
class Const:
    """``const G = e``."""

    name: Name
    value: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class TensorDecl:
    """``input X: f16[B, M]`` or ``output ...``."""

    is_output: bool
    name: Name
    dtype: Name
    shape: tuple[Expr, ...]
    span: Span
    strided: tuple[Name, ...] | None = None  # the names in brackets, none for all axes but the last


@dataclass(frozen=True, slots=True)
class ScalarDecl:
    """``scalar eps: f32 = 1e-5``."""

    name: Name
    dtype: Name
    default: Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Function:
    """``def f[j | c](x) = e``."""

    name: Name
    indices: tuple[Name, ...]
    cond: Name | None
    params: tuple[Name, ...]
    body: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Include:
    """``include "norms.naut"``."""

    path: str
    span: Span


@dataclass(frozen=True, slots=True)
class Define:
    """``S: f32[i: M, j] = e``."""

    name: Name
    dtype: Name | None
    axes: tuple[Binder, ...]
    expr: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Recur:
    """``recur h[t] = e``, or several definitions in ``recur { ... }``."""

    defines: tuple[Define, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Assume:
    """``assume N % 8 == 0``."""

    fact: Expr
    span: Span


Statement: TypeAlias = Dim | Const | TensorDecl | ScalarDecl | Function | Include | Define | Recur | Assume


@dataclass(frozen=True, slots=True)
class File:
    """One parsed source."""

    source: Source
    statements: tuple[Statement, ...] = field(default=())


def children(node: Expr) -> Iterator[Expr]:
    """The expressions directly inside of ``node``."""
    for f in fields(node):
        value = getattr(node, f.name)
        for child in value if isinstance(value, tuple) else (value,):
            if isinstance(child, Expr):
                yield child

"""Scalar IR: what is computed, in which loops.

The whole grammar::

    program := 'program' NAME { buffer* param* kernel* }
    buffer  := ('input' | 'output' | 'temp') NAME ':' dtype '[' extent, ... ']'
    param   := 'param' NAME ':' dtype ['=' number]
    kernel  := 'kernel' NAME '{' local* stmt* '}'
    local   := 'local' NAME ':' dtype '[' extent, ... ']'
    stmt    := loop | store | update
    loop    := kind VAR 'in' expr '..' expr '{' stmt* '}'       -- half-open; nests print as one line
    kind    := 'grid' | 'par' | 'red' | 'seq' | 'tile' | 'tile.red'
    store   := NAME '[' expr, ... ']' '=' expr ['where' expr]
    update  := NAME '[' expr, ... ']' combiner '=' expr ['where' expr]      -- e.g.  m[i] max= x
    expr    := core.expr.nodes, without Reduce and Ref

Meaning.  Kernels run one after another; each sees everything the earlier ones wrote.  ``temp``
buffers live in global memory between kernels; a ``local`` exists once per iteration of the
``grid`` loops around it and starts undefined.  ``store`` writes, ``update`` combines into what is
there.  A false guard (``where``) means the statement does not run, its loads included.

Loop kinds.  ``grid`` and ``par`` promise that iterations are independent (no iteration reads or
writes what another writes); ``red`` promises that its iterations only *update* (order-free, the
combiner is associative and commutative); ``seq`` runs in order and may carry locals.  ``grid``
loops stand outermost in a kernel, perfectly nested, and become the launch grid.  ``tile`` and
``tile.red`` are the innermost loops: independent, or reduced over, inside one tile.  Extents of
``tile`` loops are constants.

Invariants (``scalar.verify`` rejects anything else):

* every buffer element that is read has been written; inputs are never written, outputs and temps
  are written by one kernel;
* value expressions of a store have the compute type of the buffer (the store rounds once to the
  buffer's storage type); an update's value has the buffer's type, which is a compute type;
* guards are ``bool``; index expressions are integers; loop bounds use outer variables only.

*Tiled form* (what ``vr_tile.lowering.lower`` takes; established by ``reorder``): under the ``grid`` and ``seq``
loops of a kernel stand only perfect nests of ``tile``/``tile.red`` loops around one statement each;
every access to a local uses exactly the tile variables (or a subset), each alone in its position:
a local *is* a tile.  One tile variable name means one axis with one extent throughout the kernel.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from nautilus.core.buffers import Buffer, ScalarParam
from nautilus.core.expr.nodes import Const, Expr
from nautilus.core.source import NO_SPAN, Span

_SPAN = field(default=NO_SPAN, compare=False, repr=False)


class Kind(enum.Enum):
    """What a loop promises about its iterations (module docstring)."""

    GRID = "grid"
    PAR = "par"
    RED = "red"
    SEQ = "seq"
    TILE = "tile"
    TILE_RED = "tile.red"

    @property
    def is_tile(self) -> bool:
        return self in (Kind.TILE, Kind.TILE_RED)

    @property
    def is_reduction(self) -> bool:
        return self in (Kind.RED, Kind.TILE_RED)


@dataclass(frozen=True, slots=True)
class Loop:
    """``for var in lo..hi`` (half-open, step 1)."""

    var: str
    lo: Expr
    hi: Expr
    kind: Kind
    body: tuple[Stmt, ...]
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class Store:
    """``buffer[index] = value where guard``."""

    buffer: str
    index: tuple[Expr, ...]
    value: Expr
    guard: Expr | None = None
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class Update:
    """``buffer[index] op= value where guard``; ``op`` names a combiner of ``core.expr.nodes``."""

    buffer: str
    op: str
    index: tuple[Expr, ...]
    value: Expr
    guard: Expr | None = None
    span: Span = _SPAN


Stmt: TypeAlias = Loop | Store | Update


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch: its locals and its loop nest."""

    name: str
    locals: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class Program:
    """A whole spec at the Scalar level. ``buffers`` in argument order: inputs, outputs, temps."""

    name: str
    buffers: tuple[Buffer, ...]
    params: tuple[ScalarParam, ...]
    kernels: tuple[Kernel, ...]

    def buffer(self, name: str) -> Buffer:
        """The argument or temp called ``name``. Raises KeyError."""
        for b in self.buffers:
            if b.name == name:
                return b
        raise KeyError(name)


def extent(loop: Loop) -> int | None:
    """The trip count of a loop with constant bounds, else None."""
    if isinstance(loop.lo, Const) and isinstance(loop.hi, Const):
        return int(loop.hi.value) - int(loop.lo.value)
    return None


def statements(body: tuple[Stmt, ...]) -> Iterator[tuple[tuple[Loop, ...], Store | Update]]:
    """Every store and update under ``body`` in program order, with the loops around it (outer first)."""
    stack: list[tuple[tuple[Loop, ...], Stmt]] = [((), s) for s in reversed(body)]
    while stack:
        loops, s = stack.pop()
        if isinstance(s, Loop):
            stack.extend(((*loops, s), inner) for inner in reversed(s.body))
        else:
            yield loops, s

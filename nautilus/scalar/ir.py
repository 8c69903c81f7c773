"""Scalar IR: what is computed, in which loops.

The grammar derives from the declarations of the statements: ``scalar.text.grammar``.

Meaning.  Kernels run one after another; each sees everything the earlier ones wrote.  ``temp``
buffers are in global memory between kernels; a ``local`` exists once per iteration of the
``grid`` loops around it and starts undefined.  ``store`` writes, ``update`` combines into what is
there.  A false guard (``where``) means the statement does not run, its loads included.

Loop kinds.  ``grid`` and ``par`` promise that iterations are independent (no iteration reads or
writes what another writes); ``red`` promises that its iterations only *update* (order-free, the
combiner is associative and commutative); ``seq`` runs in order and may carry locals.  ``grid``
loops stand outermost in a kernel, perfectly nested, and become the launch grid.  Loops of all
``tile`` kinds are the innermost ones, inside one tile: independent, reduced over, or in order, from the first position
(``tile.seq``) or from the last one (``tile.down``).  Their extents are constants.

Scan.  Under a ``tile.seq`` or ``tile.down`` loop stand stores without loops, each of which reads its own tensor at most
at the step before, and is linear in that element, ``h[t] = a * h[t - 1] + b``, with ``abs(a) <= 1`` if it is a float:
later levels combine steps in any order.

Scatter.  An *atomic* update combines into an element of global memory whose position reads memory, so that iterations
may meet at one element; no iteration interrupts another one there.  The buffer has an ``initial`` value, the identity
of the combiner, nothing else writes it, and its kernel does not read it.  Combiner and type are those for which every
order gives the same bits (:mod:`nautilus.core.expr.atomics`), so iterations of ``grid``, ``par`` and ``tile`` loops
around it count as independent.

Invariants (``scalar.verify`` rejects anything else):

* every buffer element that is read has been written; inputs are never written, outputs and temps
  are written by one kernel;
* value expressions of a store have the compute type of the buffer (the store rounds once to the
  buffer's storage type); an update's value has the buffer's type, which is a compute type;
* guards are ``bool``; index expressions are integers; loop bounds use outer variables, and inputs at positions
  made of them without those of tiles.

*Tiled form* (what ``vr_tile.lowering.lower`` takes; established by ``reorder``): under the ``grid`` and ``seq``
loops of a kernel stand only perfect nests of ``tile`` loops of all kinds around one statement each;
every access to a local uses exactly the tile variables (or a subset), each alone in its position, but for the element
of the step before in a scan: a local *is* a tile.  One tile variable name means one axis with one extent throughout
the kernel.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from nautilus.core.buffers import Buffer, Fact, HasBuffers, ScalarParam
from nautilus.core.expr.nodes import COMBINERS, Const, Expr
from nautilus.core.op_fields import COMBINER, EXPR, EXPRS, INTEGER, NAME, VARIABLE, WRITE_MEMORY, flag
from nautilus.core.ops import SPAN, FieldRole, Level, declare, op, part
from nautilus.core.ops import Kind as FieldKind
from nautilus.core.source import Span
from nautilus.core.text.assembly import FORMS, Form, Reader
from nautilus.core.text.modules import BUFFERS, FACTS, LOCALS, PARAMS, kernels
from nautilus.core.text.syntax import REGION, words


class Kind(enum.Enum):
    """What a loop promises about its iterations (module docstring)."""

    GRID = "grid"
    PAR = "par"
    RED = "red"
    SEQ = "seq"
    TILE = "tile"
    TILE_RED = "tile.red"
    TILE_SEQ = "tile.seq"
    TILE_DOWN = "tile.down"

    @property
    def is_tile(self) -> bool:
        """Whether the loop is inside of a tile."""
        return self in (Kind.TILE, Kind.TILE_RED, Kind.TILE_SEQ, Kind.TILE_DOWN)

    @property
    def is_ordered(self) -> bool:
        """Whether iterations run one after another."""
        return self is Kind.SEQ or self.is_scan

    @property
    def is_scan(self) -> bool:
        """Whether iterations are the steps of a scan of a tile, in order from the first or from the last position."""
        return self in (Kind.TILE_SEQ, Kind.TILE_DOWN)

    def order(self, lo: int, hi: int) -> range:
        """The iterations of an ordered loop in their order."""
        return range(hi - 1, lo - 1, -1) if self is Kind.TILE_DOWN else range(lo, hi)

    @property
    def is_reduction(self) -> bool:
        """Whether iterations only update."""
        return self in (Kind.RED, Kind.TILE_RED)


KIND = FieldRole(FieldKind.ATTRIBUTE, words({k.value: k for k in Kind}))
BODY = FieldRole(FieldKind.REGION, replace(REGION, grammar="stmt*"))
#: the statements of this IR
SCALAR = Level("scalar", "value")


@op(SCALAR, "$kind $var in $lo..$hi {$body}")
class Loop:
    """``for var in lo..hi`` (half-open, step 1)."""

    var: str = declare(VARIABLE)
    lo: Expr = declare(EXPR)
    hi: Expr = declare(EXPR)
    kind: Kind = declare(KIND)
    body: tuple[Stmt, ...] = declare(BODY)
    span: Span = SPAN


@op(SCALAR, "$buffer[$index] = $value( where $guard)?")
class Store:
    """``buffer[index] = value where guard``."""

    buffer: str = declare(WRITE_MEMORY)
    index: tuple[Expr, ...] = declare(EXPRS)
    value: Expr = declare(EXPR)
    guard: Expr | None = declare(EXPR, default=None)
    span: Span = SPAN


@op(SCALAR, "$buffer[$index] $op= $value( where $guard)?( $atomic)?")
class Update:
    """``buffer[index] op= value where guard``; ``op`` names a combiner of ``core.expr.nodes``.

    ``atomic``: a scatter, see the module docstring.
    """

    buffer: str = declare(WRITE_MEMORY)
    op: str = declare(COMBINER)
    index: tuple[Expr, ...] = declare(EXPRS)
    value: Expr = declare(EXPR)
    guard: Expr | None = declare(EXPR, default=None)
    span: Span = SPAN
    atomic: bool = declare(flag("atomic"), default=False)


Stmt: TypeAlias = Loop | Store | Update
SCALAR.close(Stmt)
FORMS[Loop].nests = "kind"


def _assignment(r: Reader) -> Form | None:
    """The form of an assignment: an update where a combiner stands after the index."""
    ts, at, depth = r.ts, 2, 1
    if ts.peek() != "[":
        return None
    while depth and ts.peek(at):
        depth += (ts.peek(at) == "[") - (ts.peek(at) == "]")
        at += 1
    if ts.peek(at) in COMBINERS:
        return FORMS[Update]
    if ts.peek(at) != "=" and not depth:
        ts.pos += at
        ts.missing("'=' or a combiner")
    return FORMS[Store]


SCALAR.forms.choose = _assignment


@part("kernel $name( spread $spread)?( team $team)? {$locals $body}")
class Kernel:
    """One launch: its locals and its loop nest.

    ``spread``: over how many blocks of a cluster a later level spreads the work of one block.  ``team``: how many
    neighbouring iterations of the grid loops together run each statement before the next one, so that each of them
    reads what the others have stored; the innermost grid loop has as many.
    """

    name: str = declare(NAME)
    locals: tuple[Buffer, ...] = declare(LOCALS)
    body: tuple[Stmt, ...] = declare(BODY)
    span: Span = SPAN
    spread: int = declare(INTEGER, default=1)
    team: int = declare(INTEGER, default=1)


@part("program $name {$buffers $params $facts $kernels}")
class Program(HasBuffers):
    """A whole spec at the Scalar level. ``buffers`` are in argument order: inputs, outputs, temps."""

    name: str = declare(NAME)
    buffers: tuple[Buffer, ...] = declare(BUFFERS)
    params: tuple[ScalarParam, ...] = declare(PARAMS)
    kernels: tuple[Kernel, ...] = declare(kernels(Kernel))
    facts: tuple[Fact, ...] = declare(FACTS, default=())


def expressions(s: Store | Update) -> tuple[Expr, ...]:
    """The expressions that ``s`` evaluates: its index, its value and its guard."""
    return (*s.index, *computed(s))


def with_expressions(s: Store | Update, f: Callable[[Expr], Expr]) -> Store | Update:
    """``s`` with ``f`` of each expression that it evaluates."""
    guard = None if s.guard is None else f(s.guard)
    return replace(s, index=tuple(map(f, s.index)), value=f(s.value), guard=guard)


def computed(s: Store | Update) -> tuple[Expr, ...]:
    """The value of ``s`` and its guard."""
    return (s.value,) if s.guard is None else (s.value, s.guard)


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
            inside = (*loops, s)
            stack += [(inside, inner) for inner in reversed(s.body)]
        else:
            yield loops, s


def common_loops(a: tuple[Loop, ...], b: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """The loops around both of two places in a kernel, of which ``a`` and ``b`` have all (outer first)."""
    same = 0
    while same < min(len(a), len(b)) and a[same] is b[same]:
        same += 1
    return a[:same]

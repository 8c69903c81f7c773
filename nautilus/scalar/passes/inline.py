"""``inline``: an elementwise temp is computed again by each of its readers.

The value is copied, never moved: the kernel that defines the temp stays as it is (``dead`` removes it once nothing
reads it), so a reader that is not rewritten sees complete values.  A temp of a storage
type rounds: its copy is under a ``cast`` to that type.  Inlining an update may bring a ``select``
into it, which becomes its guard (:mod:`nautilus.scalar.analysis.masking`).

The schedule names the temps.  Where it leaves the choice open, they are all that do not make an expression larger than
:data:`LIMIT` nodes, counted as it prints (every level of text is a tree).  A temp that is read in windows, such as the
state before in each step of a stencil, is computed once for each element of a window: it stays in memory where it is
computed from more than :data:`READS` tensors of its own shape.  Two kinds of temps of 16 bits stay in memory too, if
each element is an operand of :data:`AGAIN` terms of a product:

* those that are computed from more than :data:`READS` elements at positions that are read, or computed from what is
  read, such as those between which a deformable convolution interpolates: the loop of the product would wait for two
  loads, one after the other, in each step;
* those with an exponential of a running result in each element, such as a product of decays: an exponential for each
  tile costs more than the element in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeAlias

from nautilus.core.buffers import Space
from nautilus.core.certificate import Certificate
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.nodes import Expr, Load, Op, children, free_vars, loads, rewrite, substitute, walk
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.source import Span
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def, points
from nautilus.scalar.analysis.domains import prefix_of
from nautilus.scalar.analysis.masking import absorb_selects
from nautilus.scalar.ir import Loop, Program, Store, Update, expressions, statements
from nautilus.scalar.rewriting import find_defs, map_kernels, map_statements, with_body

LIMIT = 2000
READS = 3
AGAIN = 32

_Seen: TypeAlias = dict[int, tuple[Store | Update, frozenset[str]]]  # by id; the statement keeps its id taken


@dataclass(frozen=True, slots=True)
class Inline(CertifyingPass[Program]):
    """Inline what ``schedule.inline`` names; no schedule, or None there: the default rule."""

    schedule: Schedule | None = None

    name = "inline"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with the temps inlined, and a certificate for each statement that changed.

        Raises ScheduleError for a name that cannot be inlined.
        """
        names = self.schedule.inline if self.schedule is not None else None
        certificates: list[Certificate] = []
        seen: _Seen = {}
        for name in default_inline(program) if names is None else names:
            program = inline_one(program, name, certificates, seen)
        return program, tuple(certificates)


def default_inline(program: Program) -> tuple[str, ...]:
    """All elementwise temps, in program order, that no reader grows beyond :data:`LIMIT` by."""
    chosen: list[str] = []
    seen: _Seen = {}
    for name in [d.name for d in find_defs(program).values() if can_inline(d)]:
        done: list[Certificate] = []
        if _is_large_in_windows(program, name, seen) or _is_stored_operand(program, name):
            continue
        candidate = inline_one(program, name, done, seen)
        if all(_size(c.after, {}) <= LIMIT for c in done):
            program = candidate
            chosen.append(name)
    return tuple(chosen)


def _is_large_in_windows(program: Program, name: str, seen: _Seen) -> bool:
    """Whether the temp ``name`` is read at neighbouring positions, and each element reads many others."""
    d = find_defs(program)[name]
    axes = {a.name for a in d.par}
    whole = {ld.buffer for ld in loads(d.value) if axes and axes <= frozenset[str]().union(*map(free_vars, ld.index))}
    if len(whole) <= READS:
        return False
    readers = [s for k in program.kernels for _, s in statements(k.body) if name in _reads(s, seen)]
    found = [{ld for e in expressions(s) for ld in loads(e) if ld.buffer == name} for s in readers]
    over = any(len(free_vars(e)) > 1 for s in found for ld in s for e in ld.index)
    return over or any(len(s) > READS for s in found)


def _is_stored_operand(program: Program, name: str) -> bool:
    """Whether the temp ``name`` of 16 bits, which is an operand of products, costs too much in each of their tiles."""
    defs = find_defs(program)
    d = defs[name]
    if not d.buffer.dtype.is_half:
        return False
    gathered = [ld for ld in loads(d.value) if any(isinstance(n, Load) for e in ld.index for n in walk(e))]
    if len(gathered) <= READS and not _decays(defs, d):
        return False
    for reader in defs.values():
        mine = [ld for ld in reader.reads() if ld.buffer == name] if reader.op == "sum" else []
        again = points(a for a in reader.axes if all(a.name not in free_vars(ld) for ld in mine[:1]))
        if mine and again >= AGAIN and any(n.op == "mul" for n in walk(reader.value) if isinstance(n, Op)):
            return True
    return False


def _decays(defs: Mapping[str, Def], d: Def) -> bool:
    """Whether each element of ``d`` has an exponential of a running result of its own."""
    axes = {a.name for a in d.par}
    powers = [n for n in walk(d.value) if isinstance(n, Op) and n.op == "exp"]
    found = [ld for n in powers for ld in loads(n) if ld.buffer in defs]
    running = (ld for ld in found if (made := defs[ld.buffer]).is_reduction and prefix_of(made) is not None)
    return any(axes <= frozenset[str]().union(*map(free_vars, ld.index)) for ld in running)


def _size(e: Expr, memo: dict[int, int]) -> int:
    """Nodes of ``e`` as it prints: a shared node counts at each place."""
    for n in reversed(tuple(walk(e))):
        if id(n) not in memo:
            memo[id(n)] = 1 + sum(_size(c, memo) if id(c) not in memo else memo[id(c)] for c in children(n))
    return memo[id(e)]


def can_inline(d: Def) -> bool:
    """Whether ``d`` is a temp that is written everywhere by one store, at the positions of its axes."""
    return d.op is None and d.scatter is None and d.guard is None and d.at is None and d.buffer.space is Space.TEMP


def inline_one(program: Program, name: str, certificates: list[Certificate], seen: _Seen | None = None) -> Program:
    """``program`` with every read of ``name`` replaced. Raises ScheduleError where that is impossible."""
    d = find_defs(program).get(name)
    if d is None or not can_inline(d):
        raise ScheduleError(f"{name!r} is not an elementwise temp", field="inline")
    return replace_reads(program, d, certificates, seen=seen)


def replace_reads(
    program: Program, temp: Def, certificates: list[Certificate] | None = None, skip: Collection[str] = (),
    seen: _Seen | None = None,
) -> Program:  # fmt: skip
    """Every read of ``temp`` becomes a copy of its value; the kernels ``skip`` stay as they are.

    ``seen``: kept between calls, so that a statement is searched once.
    """
    known: _Seen = {} if seen is None else seen

    def rule(loops: tuple[Loop, ...], s: Store | Update) -> Store | Update:
        del loops
        if s.buffer == temp.name or temp.name not in _reads(s, known):
            return s
        copies: dict[Load, Expr] = {}
        value = _replaced(s.value, temp, copies)
        bindings = tuple((f"{ld.buffer}[...]", e) for ld, e in copies.items())  # those of the condition are others
        guard = None if s.guard is None else _replaced(s.guard, temp, copies)
        index = tuple(_replaced(i, temp, copies) for i in s.index)
        if value is not s.value and certificates is not None:
            proof = f"{temp.name} is defined so, at every index"
            certificates.append(Certificate("inline", s.buffer, s.value, value, bindings, (), (), proof, s.span))
        if isinstance(s, Update):
            value, guard = absorb_selects(s.op, value, guard)
        return replace(s, index=index, value=value, guard=guard)

    return map_kernels(program, lambda k: k if k.name in skip else with_body(k, map_statements(k.body, rule)))


def _reads(s: Store | Update, seen: _Seen) -> frozenset[str]:
    """The buffers that ``s`` reads."""
    if id(s) not in seen:
        seen[id(s)] = (s, frozenset(ld.buffer for e in expressions(s) for ld in loads(e)))
    return seen[id(s)][1]


def _at(value: Expr, index: dict[str, Expr]) -> Expr:
    """``value`` at ``index``, whose integers of other types are cast, except where one of them is a whole position."""
    cast = {name: i if i.dtype is DType.I32 else Op("cast", (i,), DType.I32) for name, i in index.items()}
    plain = {c: i for c, i in zip(cast.values(), index.values(), strict=True) if c is not i}
    new = substitute(value, cast)
    return rewrite(new, lambda n: _positions(n, plain) if isinstance(n, Load) else None) if plain else new


def _positions(load: Load, plain: dict[Expr, Expr]) -> Expr:
    return replace(load, index=tuple(plain.get(i, i) for i in load.index))


def _replaced(e: Expr, d: Def, copies: dict[Load, Expr]) -> Expr:
    """``e`` with loads of ``d`` replaced; equal loads share one copy."""

    def rule(n: Expr) -> Expr | None:
        if not isinstance(n, Load) or n.buffer != d.name:
            return None
        if n not in copies:
            value = _at(d.value, {a.name: i for a, i in zip(d.par, n.index, strict=True)})
            copies[n] = _of_type(value, d.buffer.dtype, n.span)
        return copies[n]

    return rewrite(e, rule)


def _of_type(value: Expr, dtype: DType, span: Span) -> Expr:
    """``value`` as an element of a tensor of ``dtype``, which rounds it unless a ``narrow`` made it one."""
    if value.dtype is dtype:
        return value
    match value:
        case Op(op="cast", args=(Op(op="narrow", dtype=narrowed) as made,)) if narrowed is dtype:
            return made
    return Op("cast", (value,), dtype, span)

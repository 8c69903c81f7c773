"""The nests of a step that exchange their elements through memory, shared among the blocks of a team.

A stencil has a state in memory and no independent axis, so that one block would compute all of it::

    seq t in 0..100, i in 0..1024, j0 in 0..8 {
      tile j in 0..128 {u[t, i, j0 * 128 + j] = u[t - 1, i - 1, j0 * 128 + j] + ...}}

The iterations of a nest are those of its longest loop, or of all of its loops where that one has too few.  Each member
``m`` of a team of ``n`` blocks (``scalar.ir.Kernel.team``) has every ``n``-th of them::

    grid m in 0..132 {seq t in 0..100, i in 0..8, j0 in 0..8 {
      tile j in 0..128 {u[t, i * 132 + m, ...] = ... where i * 132 + m < 1024}}}

The first member has a nest without such loops, as that of a sum over all of the state.  The blocks of a team wait for
each other where one reads what another has stored.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod
from typing import TypeAlias

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Expr, Var
from nautilus.core.index.sizes import as_extent
from nautilus.core.text.names import unused
from nautilus.scalar.ir import Kind, Loop, Stmt, Store, Update
from nautilus.scalar.rewriting import map_statements, nest, substituted
from nautilus.scalar.rewriting.recurrence_teams import EXCHANGE, MEMBER, STEP

ITERATION = 0.7  # microseconds of one iteration, whose loads wait for the L2 cache
ENOUGH = 1.25  # iterations of the longest loop alone, relative to the least number for each member

#: the loops of a nest that are no grid loops of its kernel, and what they repeat
Nest: TypeAlias = tuple[tuple[Loop, ...], tuple[Stmt, ...]]


def member_count(nests: Sequence[Nest], groups: int, multiprocessors: int) -> tuple[int, float]:
    """How many blocks share the nests of a step, for the least time, and its microseconds.

    ``groups``: teams that run at the same time.  A team of one is a block for itself.
    """
    alone = STEP + ITERATION * sum(_iterations(loops) for loops, _ in nests)
    most = min(multiprocessors // max(groups, 1), max(_iterations(loops) for loops, _ in nests))
    if most < 2 or not all(isinstance(as_extent(loop.hi), int) for loops, _ in nests for loop in loops):
        return 1, alone
    each = sum(-(-_iterations(loops) // most) for loops, _ in nests)
    together = STEP + ITERATION * each + (EXCHANGE + MEMBER * most) * len(nests)
    return (most, together) if together < alone else (1, alone)


def _iterations(loops: Sequence[Loop]) -> int:
    return prod(n for loop in loops if isinstance(n := as_extent(loop.hi), int))


def shared_nest(found: Nest, member: str, count: int, taken: Collection[str]) -> tuple[Stmt, ...]:
    """The part of the nest ``found`` that ``member`` of ``count`` computes. ``taken``: names that no loop may have."""
    loops, body = found
    longest = max(loops, key=lambda loop: _iterations([loop]), default=None)
    least = -(-_iterations(loops) // count)
    if longest is None or _iterations(loops) == 1:
        return _where(nest(loops, body), calc("eq", Var(member), integer(0)))
    rest = _iterations(loops) // _iterations([longest])
    if -(-_iterations([longest]) // count) * rest > ENOUGH * least:
        return _flat(loops, body, member, count, taken)
    return nest([loop for loop in loops if loop is not longest], _cut(longest, body, member, count, taken))


def _cut(loop: Loop, body: tuple[Stmt, ...], member: str, count: int, taken: Collection[str]) -> tuple[Stmt, ...]:
    """Every ``count``-th iteration of ``loop`` around ``body``, from that of ``member`` on."""
    extent = _iterations([loop])
    part = unused(f"{loop.var}_part", taken)
    place = calc("add", calc("mul", Var(part), count), Var(member))
    inside = substituted(body, {loop.var: place})
    if extent % count:
        inside = _where(inside, calc("lt", place, integer(extent)))
    return (replace(loop, var=part, hi=integer(-(-extent // count)), kind=Kind.SEQ, body=inside),)


def _flat(
    loops: Sequence[Loop], body: tuple[Stmt, ...], member: str, count: int, taken: Collection[str]
) -> tuple[Stmt, ...]:
    """The same of all ``loops`` as one."""
    flat = unused("_".join(loop.var for loop in loops), taken)
    places: dict[str, Expr] = {}
    inner = _iterations(loops)
    for n, loop in enumerate(loops):
        inner //= _iterations([loop])
        place = Var(flat) if inner == 1 else calc("floordiv", Var(flat), inner)
        places[loop.var] = place if n == 0 else calc("mod", place, _iterations([loop]))
    whole = replace(loops[0], var=flat, hi=integer(_iterations(loops)))
    return _cut(whole, substituted(body, places), member, count, {*taken, flat})


def _where(body: tuple[Stmt, ...], inside: Expr) -> tuple[Stmt, ...]:
    """``body`` with all of its statements under the condition ``inside`` too."""

    def rule(_: tuple[Loop, ...], s: Store | Update) -> Store | Update:
        return replace(s, guard=conjunction((inside, s.guard)))

    return map_statements(body, rule)

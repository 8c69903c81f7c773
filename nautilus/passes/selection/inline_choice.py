"""Elementwise definitions that are stored instead of computed again, by the cost model.

The rule of the pass ``inline`` substitutes every elementwise definition into its readers.  In a product, each tile of
the result then computes the operand again, in the loop that should do nothing but multiply.  A definition is a
candidate where it is stored in a type of at most 16 bits, has arithmetic of its own or ends a reduction, and is an
operand of a product with :data:`~nautilus.scalar.passes.operands.store_operands.AGAIN` times as many terms as it has
elements.  All candidates of a program are stored together, since a product reaches the faster engine only if both of
its operands are tensors; then each alone, if together they are not faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from nautilus.core.expr.nodes import Expr, Load, Op, walk
from nautilus.core.expr.products import strip_conversions
from nautilus.passes.manager import Context
from nautilus.passes.selection import split_choice
from nautilus.passes.selection.trial import Trial
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.operands.store_operands import AGAIN
from nautilus.scalar.rewriting import find_defs

MARGIN = 0.1  # relative gain by the cost model below which the choice of the rules stays
_BEFORE = "simplify"  # the pass before the one that inlines
_ALONE = 3  # candidates that are tried alone


def choose(program: Program, context: Context) -> Trial | None:
    """The best trial of ``program``, the result of :data:`_BEFORE`; None where no trial was made.

    Its schedule has the ``inline`` of ``context.schedule`` where no other one is clearly better.
    """
    schedule = context.schedule
    assert schedule is not None and schedule.inline is not None
    found = candidates(find_defs(program), schedule.inline)
    if not found:
        return None
    first = split_choice.priced_after(program, context, _BEFORE)
    if first is None:
        return None
    for stored in _sets(found):
        inline = tuple(n for n in schedule.inline if n not in stored)
        made = split_choice.priced_after(program, replace(context, schedule=replace(schedule, inline=inline)), _BEFORE)
        if made is not None and made.seconds < (1 - MARGIN) * first.seconds:
            return made
    return first


def candidates(defs: Mapping[str, Def], inline: tuple[str, ...]) -> tuple[str, ...]:
    """The definitions among ``inline`` that products compute again for each of their tiles."""
    found: dict[str, None] = {}
    for d in defs.values():
        if d.op == "sum" and isinstance(value := strip_conversions(d.value), Op) and value.op == "mul":
            terms = prod(size(a) or 1 for a in d.axes)
            found |= dict.fromkeys(n for e in value.args for n in _stored(e, defs, inline, terms))
    return tuple(n for n in inline if n in found)


def _stored(e: Expr, defs: Mapping[str, Def], inline: tuple[str, ...], terms: int) -> Iterator[str]:
    """The candidates that a factor of a product of ``terms`` terms reads, nearest first."""
    for ld in (n for n in walk(e) if isinstance(n, Load) and n.buffer in inline):
        d = defs[ld.buffer]
        elements = prod(size(a) or 1 for a in d.par)
        if d.buffer.dtype.is_float and d.buffer.dtype.bytes <= 2 and _computes(d, defs) and terms >= AGAIN * elements:
            yield d.name
        else:
            yield from _stored(d.value, defs, inline, terms)


def _computes(d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether ``d`` is more than a conversion of an element, or converts the result of a reduction, which it ends."""
    value = strip_conversions(d.value)
    made = defs.get(value.buffer) if isinstance(value, Load) else None
    return isinstance(value, Op) or (made is not None and made.is_reduction)


def _sets(found: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield found
    if len(found) > 1:
        yield from ((n,) for n in found[:_ALONE])

"""Elementwise definitions that are stored instead of computed again, by the cost model.

The rule of the pass ``inline`` substitutes every elementwise definition into its readers.  In a product, each tile of
the result then computes the operand again, in the loop that should do nothing but multiply.  A definition is a
candidate where it is stored in a type of at most 16 bits, has arithmetic of its own or ends a reduction, and is an
operand of a product with :data:`~nautilus.scalar.passes.operands.store_operands.AGAIN` times as many terms as it has
elements; in any type, and with :data:`~nautilus.scalar.passes.operands.store_operands.AGAIN_APART` times as many
terms, where it computes with gathered rows, such as the corners of a bilinear sample: a kernel of its own reads long
parts of rows, and the fragments of an MMA 4 bytes of each.  What ends a chain of reductions, as the result of attention
that a product projects, is a candidate in every type and before every product: where the reader computes it, the
reductions that it reads have no kernel in common.  So is a factor that rounds the result of a product, times
constants, to 16 bits: where no kernel has both products, the result is in memory anyway, in f32 if the reader rounds
it.  So is one that rounds what a window gives, as a depthwise convolution does, which no kernel of a product computes.
A sum of several products of which a reader needs columns that lie beside each other, as the gates of a cell do, is
a candidate too: the products are then one kernel.  An element of pairs, as each of the scores that are compared with
all others, is computed again for each tile of results, unless it is stored.  An elementwise definition that reads one
at several positions, as a stencil of what another stencil gives, computes it at each of them.  All candidates of a
program are stored together, since a product reaches the faster engine only if both of its operands are tensors; then
each alone, if together they are not faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, free_vars, loads, walk
from nautilus.core.expr.products import strip_conversions
from nautilus.passes.manager import Context
from nautilus.passes.pipelines import SCALAR
from nautilus.passes.selection import split_choice
from nautilus.passes.selection.trial import Trial
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.contractions.shared_parts import slots
from nautilus.scalar.analysis.definitions import Def, points, size, slides
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.operands.store_operands import AGAIN, AGAIN_APART, AGAIN_INPUTS
from nautilus.scalar.rewriting import find_defs
from nautilus.targets.memory_rates import LAUNCH
from nautilus.targets.rates import Machine, machine
from nautilus.targets.records import DEFAULT_TARGET

MARGIN = 0.1  # relative gain by the cost model below which the choice of the rules stays
WINDOW_SLOTS = 128  # an element that is stored and loaded takes about as long as half of them
STENCIL_SLOTS = WINDOW_SLOTS // 2
PAIR_TILE = 16  # results of a tile that share an element of pairs
PAIR_RESULTS = 1 << 15  # results with which tiles fill the GPU; of fewer ones, each has an element for itself
AGAIN_PAIRS = 4 * PAIR_TILE  # results that read an element of pairs, from which on it may be stored
PAIR_LAUNCHES = 1  # launches that take as long as the elements that tiles of pairs compute again
NAMED = 0.01  # relative gain below which a definition that is in memory in any case keeps its name there
_BEFORE = SCALAR.before("inline")
_ALONE = 3  # candidates that are tried alone


def choose(program: Program, context: Context) -> Trial | None:
    """The best trial of ``program``, the result of :data:`_BEFORE`; None where no trial was made.

    Its schedule has the ``inline`` of ``context.schedule`` where no other one is clearly better.  Where that one has no
    price, because its plan is a very conservative one, the first other one with a price is better.
    """
    schedule = context.schedule
    assert schedule is not None and schedule.inline is not None
    found = candidates(find_defs(program), schedule.inline, context.arch)
    if not found:
        return None
    first, known = None, False
    for stored in _sets(found):
        inline = tuple(n for n in schedule.inline if n not in stored)
        made = split_choice.priced_after(program, replace(context, schedule=replace(schedule, inline=inline)), _BEFORE)
        if made is None:
            continue
        least = made.seconds / (1 - MARGIN)  # where the rules take longer, their splits do not matter
        if not known:
            first = split_choice.priced_after(program, context, _BEFORE, least)
        if first is None or first.seconds > least or _stores_as_much(program, first, made):
            return made
        known = True
    return first if known else split_choice.priced_after(program, context, _BEFORE)


def _stores_as_much(program: Program, inlined: Trial, stored: Trial) -> bool:
    """Whether operands that are ``stored`` by names of ``program`` are in memory by other names where ``inlined``."""
    names, (before, after) = {k.name for k in program.kernels}, (t.schedule.kernels for t in (inlined, stored))
    renamed = any(k.name not in names for k in before)
    return renamed and len(before) >= len(after) and inlined.seconds >= stored.seconds * (1 - NAMED)


def candidates(defs: Mapping[str, Def], inline: tuple[str, ...], arch: str = DEFAULT_TARGET) -> tuple[str, ...]:
    """The definitions among ``inline`` that products compute again for each of their tiles, and windows for each term.

    ``arch``: the target, whose rates decide about windows.
    """
    found: dict[str, None] = {}
    ends = _ends(defs, inline)
    for d in defs.values():
        if factors := _factors(d):
            terms = prod(size(a) or 1 for a in d.axes)
            found |= dict.fromkeys(n for e in factors for n in _stored(e, defs, inline, terms, ends))
        found |= dict.fromkeys(_in_windows(d, defs, inline, machine(arch)))
        found |= dict.fromkeys(_in_pairs(d, defs, inline, machine(arch)))
        found |= dict.fromkeys(_beside_others(d, defs, inline))
        found |= dict.fromkeys(_in_stencils(d, defs, inline, machine(arch)))
    return tuple(n for n in inline if n in found)


def _factors(d: Def) -> tuple[Expr, ...]:
    """The factors of the terms of ``d``, a sum of products; () where it is none."""
    value = strip_conversions(d.value)
    return value.args if d.op == "sum" and isinstance(value, Op) and value.op == "mul" else ()


def _stored(
    e: Expr, defs: Mapping[str, Def], inline: tuple[str, ...], terms: int, ends: frozenset[str]
) -> Iterator[str]:
    """The candidates that a factor of a product of ``terms`` terms reads, nearest first; ``ends``: those of chains."""
    whole = isinstance(strip_conversions(e), Load)  # the factor is an element as it is
    for ld in (n for n in walk(e) if isinstance(n, Load) and n.buffer in inline):
        d = defs[ld.buffer]
        elements = prod(size(a) or 1 for a in d.par)
        least = AGAIN if any(x.buffer in defs for x in d.reads()) else AGAIN_INPUTS
        often = d.buffer.dtype.bytes <= 2 and terms >= least * elements
        again = _computes(d, defs) and (often or (_gathers(d, defs) and terms >= AGAIN_APART * elements))
        stored = whole and (_rounds_product(d, defs) or _rounds_window(d, defs))  # in memory anyway
        if d.buffer.dtype.is_float and (again or d.name in ends or stored):
            yield d.name
        else:
            yield from _stored(d.value, defs, inline, terms, ends)


def _in_windows(d: Def, defs: Mapping[str, Def], inline: tuple[str, ...], rates: Machine) -> Iterator[str]:
    """The candidates that ``d`` reads in windows: an index moves with an axis of the result and with a reduced one."""
    kept, reduced = {a.name for a in d.par}, {a.name: size(a) or 1 for a in d.red}
    for ld in (ld for ld in d.reads() if ld.buffer in inline):
        moved = {x for e in ld.index if free_vars(e) & kept for x in free_vars(e) & reduced.keys()}
        again = prod(reduced[x] for x in moved) * _slots(defs[ld.buffer], defs, inline)
        rate = rates.multiprocessors * rates.fma * rates.clock
        if moved and again >= WINDOW_SLOTS and points(d.par) * again > LAUNCH * 1e-6 * rate:
            yield ld.buffer


def _in_stencils(d: Def, defs: Mapping[str, Def], inline: tuple[str, ...], rates: Machine) -> Iterator[str]:
    """The candidates that the elementwise ``d`` reads at several positions."""
    if d.op is not None:
        return
    rate = rates.multiprocessors * rates.fma * rates.clock
    for name in dict.fromkeys(ld.buffer for ld in d.reads() if ld.buffer in inline):
        positions = {ld.index for ld in d.reads() if ld.buffer == name}
        again = (len(positions) - 1) * _slots(defs[name], defs, inline)
        if again >= STENCIL_SLOTS and points(d.par) * again > LAUNCH * 1e-6 * rate:
            yield name


def _in_pairs(d: Def, defs: Mapping[str, Def], inline: tuple[str, ...], rates: Machine) -> Iterator[str]:
    """The candidates that ``d``, a reduction but no product of matrices, reads again for each tile of its results.

    Such as the scores of which each one is compared with all others.
    """
    if d.op is None or multiplies_matrices(d):
        return
    least = PAIR_LAUNCHES * LAUNCH * 1e-6 * rates.multiprocessors * rates.fma * rates.clock
    for ld in (ld for ld in d.reads() if ld.buffer in inline and _computes(defs[ld.buffer], defs)):
        shared = prod(size(a) or 1 for a in d.par if a.name not in free_vars(ld))
        tile = PAIR_TILE if points(d.par) >= PAIR_RESULTS else 1
        again = points(d.axes) // tile * _slots(defs[ld.buffer], defs, inline)
        if shared >= AGAIN_PAIRS and again > least:
            yield ld.buffer


def _beside_others(d: Def, defs: Mapping[str, Def], inline: tuple[str, ...]) -> Iterator[str]:
    """The candidates that combine elements of several products, of which ``d`` reads some that lie beside others.

    Such as the columns of several gates: no kernel has the products and ``d``, and one kernel may have the products and
    what combines them.
    """
    for ld in (ld for ld in d.reads() if ld.buffer in inline):
        own = tuple(Var(a.name) for a in defs[ld.buffer].par)
        made = [defs[x.buffer] for x in defs[ld.buffer].reads() if x.buffer in defs and x.index == own]
        beside = any(not isinstance(e, Var) for e in ld.index)
        if beside and sum(bool(_factors(x)) for x in made) > 1:
            yield ld.buffer


def _slots(d: Def, defs: Mapping[str, Def], inline: tuple[str, ...]) -> float:
    """Issue slots of one element of ``d``, with those of the definitions that are inlined into it."""
    inner = (defs[ld.buffer] for ld in d.reads() if ld.buffer in inline)
    return slots(d.value) + len(d.reads()) + sum(_slots(made, defs, inline) for made in inner)


def _gathers(d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether ``d`` reads parts of rows at positions that are read from memory, and no reduction."""
    if any(ld.buffer in defs and defs[ld.buffer].is_reduction for ld in d.reads()):
        return False
    return any(any(map(loads, ld.index[:-1])) and not loads(ld.index[-1]) for ld in d.reads())


def _computes(d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether ``d`` is more than a conversion of an element, or converts the result of a reduction, which it ends."""
    value = strip_conversions(d.value)
    made = defs.get(value.buffer) if isinstance(value, Load) else None
    return isinstance(value, Op) or (made is not None and made.is_reduction)


def _rounds_window(d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether ``d`` rounds what a window gives at each of its positions to at most 16 bits: a depthwise convolution."""
    own = tuple(Var(a.name) for a in d.par)
    made = [defs[ld.buffer] for ld in d.reads() if ld.buffer in defs and ld.index == own]
    found = [r for r in made if r.is_reduction and r.buffer.dtype.bytes > d.buffer.dtype.bytes]
    windows = any(slides(r, {a.name for a in r.red}, {a.name for a in r.par}) for r in found)
    return windows and d.buffer.dtype.bytes <= 2 and not any(map(multiplies_matrices, found))


def _rounds_product(d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether ``d`` rounds the result of a product, times constants, to at most 16 bits."""
    value = strip_conversions(d.value)
    while isinstance(value, Op) and value.op in ("mul", "div") and any(isinstance(e, Const) for e in value.args):
        value = strip_conversions(next((e for e in value.args if not isinstance(e, Const)), value.args[0]))
    if not isinstance(value, Load) or value.index != tuple(Var(a.name) for a in d.par):
        return False
    return d.buffer.dtype.bytes <= 2 and value.buffer in defs and bool(_factors(defs[value.buffer]))


def _ends(defs: Mapping[str, Def], inline: tuple[str, ...]) -> frozenset[str]:
    """The definitions that end a chain of reductions.

    Such a definition is made from a reduction with all of its axes, whose terms are made from another reduction, and
    no other reductions than products read it.  What also reads a reduction of its source, as the weights of a softmax
    read the maximum of the scores, is in the middle of a chain.
    """
    others = [d for d in defs.values() if d.is_reduction and not _factors(d)]
    within = {ld.buffer for d in others for ld in d.reads()}
    for name in reversed(inline):
        within |= {ld.buffer for ld in defs[name].reads()} if name in within else set()
    return frozenset(name for name in inline if name not in within and _ends_chain(defs[name], defs, inline))


def _ends_chain(d: Def, defs: Mapping[str, Def], inline: tuple[str, ...]) -> bool:
    read = {r.name: {x.name for x in _reductions(r, defs, inline)} for r in _reductions(d, defs, inline)}
    last = [name for name, inner in read.items() if inner and len(defs[name].par) == len(d.par)]
    return any(not any(name in inner for inner in read.values()) for name in last)


def _reductions(d: Def, defs: Mapping[str, Def], inline: tuple[str, ...]) -> Iterator[Def]:
    """The reductions that ``d`` reads, through definitions that are inlined."""
    for name in dict.fromkeys(ld.buffer for ld in d.reads() if ld.buffer in defs):
        if defs[name].is_reduction:
            yield defs[name]
        elif name in inline:
            yield from _reductions(defs[name], defs, inline)


def _sets(found: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield found
    if len(found) > 1:
        yield from ((n,) for n in found[:_ALONE])

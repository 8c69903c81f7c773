"""The planner of a compilation: the rules of :mod:`nautilus.planner`, and the cost model where rules leave a choice.

Each decision starts from what the rules say.  Where the structure of a program suggests another plan, both are lowered
to MA-tile IR (:mod:`nautilus.passes.selection.trial`), and the one with the shorter predicted time is taken, if the
gain is clear.  Candidates are generated for few programs, so most compilations make no trial.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from nautilus.core.fallbacks import LIGHTER, NO_FALLBACKS, Fallbacks
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity, first_equal
from nautilus.core.schedule import Schedule, parts_allowed
from nautilus.passes.manager import Context
from nautilus.passes.pipelines import SCALAR
from nautilus.passes.selection import copy_choice, inline_choice, narrow_choice, split_choice
from nautilus.passes.selection.trial import ATTEMPTS, MARGIN, Trial, apart, attempt, smaller
from nautilus.passes.trials.large import is_large
from nautilus.planner.groups import known_of
from nautilus.planner.kernels import grouped
from nautilus.planner.planner import Planner
from nautilus.planner.products.dots import dot_of, full_operands
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.targets.limits import limits

_BEFORE = SCALAR.before("fuse")  # its result is divided into kernels
TERMS = 1 << 28  # terms of products whose kernels take longer than several launches
_SPLIT = "split-k-update"
_BEFORE_SPLITS = SCALAR.before(_SPLIT)


@dataclass(frozen=True, slots=True)
class PricedPlanner:
    """``fallbacks``: kernels that failed later with what the rules chose first; ``trial``: follows the rules alone."""

    arch: str
    precision: str = "fast"
    fallbacks: Fallbacks = NO_FALLBACKS
    trial: bool = False

    def decide(self, before: str, program: Program, schedule: Schedule | None) -> tuple[Schedule, Fallbacks]:
        """``schedule`` (None: one of defaults) with the choices that pass ``before`` needs for ``program``.

        The fallbacks are those of trials that had to take them, so that the compilation does not fail in the same way.
        """
        given = schedule or Schedule()
        known = first_equal(self.fallbacks), first_equal(given)
        decided = _by_rules(self.arch, self.precision, before, program, *known)
        found: Trial | None = None
        if given.kernels:
            return decided, self.fallbacks
        if before == "narrow":
            return self._narrow(program, given)
        if self.trial:
            return decided, self.fallbacks
        if before == "inline" and given.inline is None:
            found = inline_choice.choose(program, self._context(decided))
        elif before == "rematerialise" and given.copies is None:
            found = copy_choice.choose(program, self._context(decided))
        elif before == "pack" and given.packs is None and given.splits is None and not given.batch_invariant:
            if found := split_choice.choose_rows(program, self._context(given), decided.packs or ()):
                return replace(given, packs=found.schedule.packs, splits=found.schedule.splits), found.fallbacks
        elif before == _SPLIT and given.splits is None and not given.batch_invariant:
            context = self._context(given)  # the splits of kernels that are parted later would be those of one kernel
            found = split_choice.choose(program, context) or _apart_where_smaller(program, context, _BEFORE_SPLITS)
        elif before == "fuse" and (chosen := _with_other_kernels(program, self._context(given))) is not None:
            return chosen.schedule, chosen.fallbacks
        if found is None:
            return decided, self.fallbacks
        made = found.schedule
        if before != _SPLIT and is_large(program, decided):  # the later choices of the trial are those of the rules
            copied = decided.copies if before == "inline" else made.copies
            return replace(decided, inline=made.inline, copies=copied), found.fallbacks
        if self.fallbacks.taken and decided.narrow_to_bytes is None:  # the trial's fallbacks are those of its factors
            decided = replace(decided, narrow_to_bytes=made.narrow_to_bytes)
        packs = made.packs if made.splits else decided.packs  # splits name axes that packs make
        planned = replace(decided, inline=made.inline, copies=made.copies, packs=packs, splits=made.splits)
        return planned, found.fallbacks

    def decide_steps(self, before: str, program: Program, schedule: Schedule) -> Schedule:
        """``schedule`` with plans of recurrences, which are no part of the programs of :meth:`decide`."""
        from nautilus.planner.products.steps import plan_steps

        planned = {k.name for k in schedule.kernels}
        made = plan_steps(program, self.arch, self.fallbacks) if before == "fuse" else ()
        return replace(schedule, kernels=(*schedule.kernels, *(k for k in made if k.name not in planned)))

    def _narrow(self, program: Program, given: Schedule) -> tuple[Schedule, Fallbacks]:
        """``given`` with the choice between 8 and 16 bits for computed factors; a trial takes 8 bits."""
        allowed = given.narrow and given.narrow_to_bytes is None
        if not allowed or not narrow_choice.may_have_bytes(program, self.arch, self.precision):
            return given, self.fallbacks
        if self.fallbacks.taken:
            return replace(given, narrow_to_bytes=False), narrow_choice.without_bytes(self.fallbacks)
        chosen = self.trial or narrow_choice.is_faster(program, self._context(given))
        return replace(given, narrow_to_bytes=chosen), self.fallbacks

    def _context(self, schedule: Schedule) -> Context:
        return Context(self.arch, self.precision, schedule=schedule, fallbacks=self.fallbacks)


@by_identity(128)
def _by_rules(
    arch: str, precision: str, before: str, program: Program, fallbacks: Fallbacks, given: Schedule
) -> Schedule:  # fmt: skip
    """The choice of the rules, which trials and the compilation ask for on the same programs."""
    return Planner(arch, fallbacks, precision).decide(before, program, given)


def _with_other_kernels(program: Program, context: Context) -> Trial | None:
    found = _stored_where_lighter(program, context) or _stored_where_faster(program, context)
    found = found or _in_parts_where_faster(program, context)
    return found or _apart_where_smaller(program, context, _BEFORE)


def _in_parts_where_faster(program: Program, context: Context) -> Trial | None:
    """The trial with a kernel for each of several products of f32 that are one by the rules, if it is clearly faster.

    A product alone has the engine of stored parts (:mod:`nautilus.planner.products.parts`), for which the registers of
    a block have no room for the sums of two.
    """
    known = context.fallbacks
    if not limits(context.arch).warpgroup or not parts_allowed(context.precision, context.schedule):
        return None
    defs = known_of(program).defs
    groups = {group for group in grouped(program, known)[0].values() if not known.steps(group[-1])}
    products = ([o for o in group if dot_of(defs[o]) is not None] for group in groups)
    several = [found for found in products if len(found) > 1 and _are_alike([defs[o] for o in found])]
    names = frozenset(o for found in several for o in found[:-1])
    if not names:
        return None
    apart = attempt(program, replace(context, fallbacks=known.storing(names)), _BEFORE)
    together = attempt(program, context, _BEFORE, ATTEMPTS) if apart is not None else None
    if apart is None or (together is not None and apart.seconds > (1 - MARGIN) * together.seconds):
        return None
    return apart


def _are_alike(products: list[Def]) -> bool:
    """Whether ``products`` of f32 tensors have the same axes, and :data:`TERMS` terms at least."""
    axes = {tuple(size(a) for a in (*d.par, *d.red)) for d in products}
    sizes = next(iter(axes))
    read = {ld.buffer for d in products for ld in d.reads()}
    apart = read.isdisjoint(d.name for d in products)
    whole = all(map(full_operands, products)) and None not in sizes
    return whole and apart and len(axes) == 1 and prod(n or 1 for n in sizes) >= TERMS


def _stored_where_lighter(program: Program, context: Context) -> Trial | None:
    """The trial that stores operands which kernels down to :data:`LIGHTER` compute, unless these are clearly faster.

    A block of a back-to-back GEMM holds such an operand in registers during the whole loop, with smaller tiles too.
    """
    known = context.fallbacks
    lighter = (name for name, step in known.taken if 0 < step <= LIGHTER)
    names = frozenset[str]().union(*(_operands(program, name, known) for name in lighter))
    if not names:
        return None
    storing = attempt(program, replace(context, fallbacks=known.storing(names)), _BEFORE)
    together = attempt(program, context, _BEFORE, ATTEMPTS) if storing is not None else None
    if storing is None or (together is not None and together.seconds < (1 - MARGIN) * storing.seconds):
        return None
    return storing


def _stored_where_faster(program: Program, context: Context) -> Trial | None:
    """The trial that stores operands of several elements of a tensor, as those that turn pairs do, if it is faster.

    The warps that multiply load such elements one by one, in front of the loop that needs the operand.  That takes
    longer than predicted (4 x 16 heads of 576 rows, pairs turned by two angles: 49 us on an H200, 31 predicted), so
    that any predicted gain is enough.
    """
    known, defs = context.fallbacks, known_of(program).defs
    groups = {group for group in grouped(program, known)[0].values() if not known.steps(group[-1])}
    found = frozenset[str]().union(*(_operands(program, group[-1], known) for group in groups))
    names = frozenset(n for n in found if len({ld.buffer for ld in defs[n].reads()}) < len(defs[n].reads()))
    storing = attempt(program, replace(context, fallbacks=known.storing(names)), _BEFORE) if names else None
    together = attempt(program, context, _BEFORE, ATTEMPTS) if storing is not None else None
    if storing is None or (together is not None and storing.seconds > together.seconds):
        return None
    return storing


def _operands(program: Program, kernel: str, fallbacks: Fallbacks) -> frozenset[str]:
    """The operands of products that ``kernel`` computes without another product, of at most 16 bits."""
    defs, group = known_of(program).defs, grouped(program, fallbacks)[0].get(kernel, ())
    plain: set[str] = set()  # definitions that need no product of the kernel
    for d in (defs[o] for o in group):
        if dot_of(d) is None and plain.issuperset({ld.buffer for ld in d.reads()} & {*group}):
            plain.add(d.name)
    read = {ld.buffer for o in group if dot_of(defs[o]) is not None for ld in defs[o].reads()}
    return frozenset(n for n in read & plain if defs[n].buffer.dtype.bytes <= 2)


def _apart_where_smaller(program: Program, context: Context, after: str) -> Trial | None:
    """The trial with the kernels of :data:`SMALLER` plans apart, where it is the faster one; None elsewhere."""
    if not smaller(context.fallbacks):
        return None
    return apart(program, context, attempt(program, context, after, ATTEMPTS), after)

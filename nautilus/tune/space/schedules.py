"""The space of schedules of a program: named choices of a few values each, made from its Scalar IR by rules.

Layers.  *Splits*: into how many chunks the long reduction loops of few blocks are cut (``tune.space.splits``), or that
they are interleaved between the warps of a block; then *interleave* says how many warps in which steps, and *groups*
in how many blocks.  *Packs*: whether points that share operands share row tiles.  *Inline*: whether an elementwise
definition is kept in memory (``tune.space.inlining``).  *Kernels*: which definitions become one kernel
(``tune.space.fusion``).  *Engine*: products by warpgroups or by single warps.  *Tuning parameters*: tiles, roles,
pipelines, order, epilogue, rescaling, for each kernel and engine (``tune.space.parameters``).

A choice is called ``KERNEL.ENGINE.PARAMETER`` (``split.`` before it for kernels of split loops, ``interleaved.`` for
those of interleaved splits); one that belongs to a kernel or an engine that another choice rules out has no effect.
No operator is known by name: everything follows from the structure.

``examine`` refuses what is not legal: the passes themselves carry the schedule out down to the MA-tile level
(``tune.search.trial_lowering``), and what they refuse (shared memory, registers of roles, divisibility, a rescaling
without a proof, a product that the engine has not) is refused with their messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from nautilus.core.errors import ScheduleError
from nautilus.core.fallbacks import WITHOUT, Fallbacks
from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan, PackPlan, Schedule, SplitPlan
from nautilus.planner.streaming import Cut
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.ir import Program
from nautilus.targets.limits import limits
from nautilus.tune.search.trial_lowering import Lowered, TrialLowering
from nautilus.tune.space import fusion, inlining, splits
from nautilus.tune.space.parameters import apply, parameters
from nautilus.tune.space.shape import KernelShape, shape_of
from nautilus.tune.space.splits import Interleaving
from nautilus.tune.space.tuning_parameter import RULE, TuningParameter

KERNELS, SPLITS, PACKS, INLINE = "kernels", "splits", "packs", "inline"
INTERLEAVE, GROUPS = "interleave", "groups"
INTERLEAVED = "interleaved"  # the value of SPLITS that makes both count
NONE = "none"
#: Parameters of the engine that the rules do not take: with more, a sampler would seldom draw the important ones.
_OTHER = 3


@dataclass(frozen=True)
class Choice:
    """One decision: ``values`` in a fixed order, numbers rising."""

    name: str
    values: tuple[object, ...]


@dataclass(frozen=True)
class Refused:
    """A point that is no schedule, and why not."""

    reason: str


@dataclass(frozen=True)
class KernelSpace:
    """One kernel: the rule-made plan by each engine, the one that the rules take first, and the parameters of each."""

    name: str
    plans: Mapping[str, KernelPlan]
    shapes: Mapping[str, KernelShape]
    parameters: Mapping[str, tuple[TuningParameter, ...]]
    prefix: str = ""  # prefix of the names of choices: the kernels of split and of whole loops differ

    def label(self, engine: str, parameter: str) -> str:
        """The name of a choice."""
        own = f"{self.prefix}{self.name}"
        return f"{own}.{engine}.{parameter}" if len(self.plans) > 1 else f"{own}.{parameter}"

    @property
    def engine(self) -> str:
        """The name of the choice of the engine."""
        return f"{self.prefix}{self.name}.engine"

    def choices(self) -> Iterator[tuple[str, tuple[object, ...], object]]:
        """(name, values, default) of everything there is to choose."""
        if len(self.plans) > 1:
            yield self.engine, tuple(self.plans), next(iter(self.plans))
        for n, e in enumerate(self.plans):
            for k in self.parameters[e] if n == 0 else self.parameters[e][:_OTHER]:
                yield self.label(e, k.name), k.values, k.default


@dataclass(frozen=True)
class Variant:
    """A split of loops: the rules' schedule for it, and its kernels."""

    base: Schedule
    program: Program  # the program, its axes cut as ``base`` says
    ways: tuple[str, ...]
    kernels: tuple[KernelSpace, ...]

    @property
    def fallbacks(self) -> Fallbacks:
        """The fallbacks of the kernels whose products are by single warps: none is more conservative."""
        return Fallbacks.of({k.name: WITHOUT for k in self.base.kernels if k.mapping.engine == "warp"})


_Way = int | Cut  # chunks for blocks, or interleaved chunks for the warps of a block
_Key = tuple[str, _Way]  # packs, splits
Point = tuple[TrialLowering, Schedule]  # a schedule and the program that it belongs to


@dataclass
class Space:
    """The space of one program and architecture; each part is computed once."""

    trials: TrialLowering
    splits: tuple[int | str, ...]
    packs: tuple[str, ...]
    standard: _Way  # what the rules take
    interleaved: Interleaving | None
    uncut: Mapping[str, Schedule]  # by packs: the rules' schedules without splits
    variants: dict[_Key, Variant | Refused]
    kept: dict[str, Point | Refused] = field(default_factory=dict)  # by value of ``inline``
    regrouped: dict[tuple[_Key, str], Schedule | Refused] = field(default_factory=dict)

    @property
    def inline(self) -> tuple[str, ...]:
        """The ways to inline, as values of ``inline``."""
        return inlining.ways(self.trials.origin)

    @property
    def base(self) -> Variant:
        """The rules' own variant."""
        found = self.variants[RULE, self.standard]
        assert isinstance(found, Variant)
        return found

    @property
    def split(self) -> int | str:
        """The rules' value of ``splits``."""
        return self.standard if isinstance(self.standard, int) else INTERLEAVED

    @property
    def regrouped_key(self) -> _Key:
        """The variant whose definitions may be grouped otherwise: an interleaved split stays, or there is none."""
        return RULE, self.standard if isinstance(self.standard, int) else 1

    @property
    def ways(self) -> tuple[str, ...]:
        """Groupings of that variant."""
        found = variant(self, *self.regrouped_key)
        assert isinstance(found, Variant)
        return found.ways

    @property
    def listed(self) -> tuple[Variant, ...]:
        """Variants whose kernels have separate choices: the rules', one for whole loops and one for split loops."""
        counts = [n for n in self.splits if isinstance(n, int)]
        kinds = {_prefix(n): n for n in reversed(counts)}
        others = [n for prefix, n in reversed(kinds.items()) if prefix != _prefix(self.standard)]
        found = [self.base, *(variant(self, RULE, n) for n in others)]
        return tuple(v for v in found if isinstance(v, Variant))


def space_of(trials: TrialLowering) -> Space:
    """The space of a program; it is made once for each program."""
    base, arch = trials.base_schedule(), trials.arch
    whole = trials.split(_open(base.packs or (), ()))
    interleaved = splits.interleaving(whole, trials.split(base), base, arch)
    standard: _Way = max((c.splits for c in base.splits or ()), default=1) if interleaved is None else interleaved.rule
    uncut = {RULE: base if standard == 1 else trials.base_schedule(_open(base.packs or (), ()))}
    if base.packs:
        uncut[NONE] = trials.base_schedule(_open((), ()))
    counts = splits.counts(trials.split(uncut[RULE]), uncut[RULE], arch)
    listed = sorted({*counts, *([standard] if isinstance(standard, int) else [])})
    return Space(
        trials, (*listed, *([] if interleaved is None else [INTERLEAVED])), tuple(uncut), standard, interleaved, uncut,
        {(RULE, standard): _variant(trials, base, standard)},
    )  # fmt: skip


def _open(packs: tuple[PackPlan, ...], cuts: tuple[SplitPlan, ...]) -> Schedule:
    """A schedule that leaves kernels to the rules."""
    return Schedule(packs=packs, splits=cuts)


def variant(space: Space, packs: str, way: _Way) -> Variant | Refused:
    """The variant that splits loops by ``way``, with or without the rules' packs."""
    if (packs, way) not in space.variants:
        space.variants[packs, way] = _cut_variant(space, packs, way)
    return space.variants[packs, way]


def _cut_variant(space: Space, packs: str, way: _Way) -> Variant | Refused:
    uncut = space.uncut[packs]
    if way == 1:
        return _variant(space.trials, uncut, way)
    program = space.trials.split(uncut)
    try:
        if isinstance(way, int):
            cut = splits.cuts(program, uncut, way)
        else:
            assert space.interleaved is not None
            cut = space.interleaved.cuts(program, way)
        if not cut:
            return Refused(f"{SPLITS}: no loop is long enough for {way} chunks")
        base = space.trials.base_schedule(_open(uncut.packs or (), cut))
        return _variant(space.trials, base, way)
    except ScheduleError as error:
        what = f"{way} chunks" if isinstance(way, int) else f"{way.groups} groups of {splits.block_text(way)}"
        return Refused(f"in {what}: {error}")


def _variant(trials: TrialLowering, base: Schedule, way: _Way) -> Variant:
    own = trials.split(base)
    fixed, defs = splits.combining(own, base), read_defs(own)
    planned = (k for k in base.kernels if defs.keys() >= set(k.ops))  # recurrences have one plan
    kernels = tuple(_kernel_space(own, trials.arch, k, _prefix(way), k.name in fixed) for k in planned)
    return Variant(base, own, fusion.ways(own, base), kernels)


def _prefix(way: _Way) -> str:
    """The prefix of the names of choices, which are listed for the rules' packs only."""
    return "interleaved." if isinstance(way, Cut) else "split." if way > 1 else ""


def _kernel_space(program: Program, arch: str, plan: KernelPlan, prefix: str, fixed: bool) -> KernelSpace:
    """The space of the kernel ``plan``; ``fixed``: the plan follows from other choices."""
    unified = fusion.unified_of(program, plan.ops)
    plans: dict[str, KernelPlan] = {plan.mapping.engine: plan}
    if plan.mapping.engine == "warpgroup":
        other = fusion.plan_group(program, plan.ops, arch, Fallbacks.of({plan.ops[-1]: WITHOUT}))
        if other.mapping.engine not in plans:
            plans[other.mapping.engine] = replace(other, name=plan.name)
    shapes = {e: shape_of(p, unified, limits(arch)) for e, p in plans.items()}
    found = {e: () if fixed and p.mapping.cluster == 1 else parameters(p, shapes[e]) for e, p in plans.items()}
    return KernelSpace(plan.name, plans, shapes, found, prefix)


def choices(space: Space) -> tuple[Choice, ...]:
    """The choices of ``space``; the most important first."""
    found: dict[str, tuple[object, ...]] = {}
    if len(space.splits) > 1:
        found[SPLITS] = space.splits
    if space.interleaved is not None:
        found |= {INTERLEAVE: space.interleaved.blocks, GROUPS: space.interleaved.groups}
    if len(space.packs) > 1:
        found[PACKS] = space.packs
    if len(space.inline) > 1:
        found[INLINE] = space.inline
    if len(space.ways) > 1:
        found[KERNELS] = space.ways
    for name, values, _ in (c for v in space.listed for k in v.kernels for c in k.choices()):
        found[name] = _merged(found.get(name, ()), values)
    return tuple(Choice(n, v) for n, v in found.items() if len(v) > 1)


def _merged(a: tuple[object, ...], b: tuple[object, ...]) -> tuple[object, ...]:
    out = list(dict.fromkeys((*a, *b)))
    numbers = [v for v in out if isinstance(v, int) and not isinstance(v, bool)]
    return tuple(sorted(numbers)) if len(numbers) == len(out) else tuple(out)


def defaults(space: Space) -> dict[str, object]:
    """The schedule that the rules make, as values of :func:`choices`."""
    found: dict[str, object] = {}
    if len(space.splits) > 1:
        found[SPLITS] = space.split
    if space.interleaved is not None:
        found |= {n: v for n, v, known in _interleaved_defaults(space.interleaved) if len(known) > 1}
    if len(space.packs) > 1:
        found[PACKS] = RULE
    if len(space.inline) > 1:
        found[INLINE] = RULE
    if len(space.ways) > 1:
        found[KERNELS] = space.ways[0]
    for name, _, default in (c for v in space.listed for k in v.kernels for c in k.choices()):
        found.setdefault(name, default)
    return found


def _interleaved_defaults(found: Interleaving) -> list[tuple[str, object, tuple[object, ...]]]:
    """(name, default, values) of what there is to choose about an interleaved split."""
    return [
        (INTERLEAVE, splits.block_text(found.rule), found.blocks),
        (GROUPS, found.rule.groups, found.groups),
    ]


def schedule_of(space: Space, values: Mapping[str, object]) -> Schedule | Refused:
    """The schedule that ``values`` say, legal or not. A choice that is not given has its default."""
    found = point(space, values)
    return found if isinstance(found, Refused) else found[1]


def point(space: Space, values: Mapping[str, object]) -> Point | Refused:
    """The schedule that ``values`` say, and the program that it is for."""
    way = str(values.get(INLINE, RULE))
    if way not in space.inline:
        return Refused(f"{INLINE} is {way!r}, not one of: {', '.join(space.inline)}")
    if way != RULE:
        if way not in space.kept:
            space.kept[way] = _kept(space, inlining.name_of(way))
        return space.kept[way]
    found = _turned(space, values)
    if isinstance(found, Refused):
        return found
    return space.trials, _of_program(space.trials, found)


def _of_program(trials: TrialLowering, found: Schedule) -> Schedule:
    """``found`` with the choices that made the program of ``trials``, for which alone its kernels are."""
    origin = trials.origin
    decided = None if origin is None else origin.context.schedule
    if origin is None or decided is None:
        return found
    return replace(
        found, inline=origin.inline, copies=decided.copies, scatters=decided.scatters,
        narrow_to_bytes=decided.narrow_to_bytes,
    )  # fmt: skip


def _kept(space: Space, name: str) -> Point | Refused:
    """The schedule with ``name`` in memory, as a kernel of its own, and the rest by the rules, without splits."""
    assert space.trials.origin is not None
    try:
        program, inline = inlining.program_with(space.trials.origin, name)
        trials = TrialLowering(program, space.trials.arch, space.trials.precision)
        base = trials.base_schedule(_open((), ()))
        own = _variant(trials, base, 1)
        groups = inlining.groups_with(own.program, fusion.groups_of(base), name)
        found = _plan_way(trials, own, fusion.text(groups))
    except ScheduleError as error:
        return Refused(f"with {name} in memory: {error}")
    return found if isinstance(found, Refused) else (trials, replace(found, inline=inline))


def _turned(space: Space, values: Mapping[str, object]) -> Schedule | Refused:
    key = _structure(space, values)
    if isinstance(key, Refused):
        return key
    own = variant(space, *key)
    if isinstance(own, Refused):
        return own
    way = str(values.get(KERNELS, own.ways[0])) if key == space.regrouped_key else own.ways[0]
    if way not in own.ways:
        return Refused(f"{KERNELS} is {way!r}, not one of: {', '.join(own.ways)}")
    base = _regroup(space, key, own, way)
    if isinstance(base, Refused):
        return base
    turned = {}
    for k in own.kernels:
        try:
            turned[k.name, next(iter(k.plans.values())).ops] = _turn(k, values)
        except ScheduleError as error:
            return Refused(f"kernel {k.name}: {error}")
    return replace(base, kernels=tuple(turned.get((k.name, k.ops), k) for k in base.kernels))


def _structure(space: Space, values: Mapping[str, object]) -> _Key | Refused:
    listed: list[tuple[str, object, tuple[object, ...]]]
    listed = [(PACKS, RULE, space.packs), (SPLITS, space.split, space.splits)]
    if space.interleaved is not None:
        listed += _interleaved_defaults(space.interleaved)
    chosen: dict[str, Any] = {}
    for name, standard, known in listed:
        chosen[name] = values.get(name, standard)
        if chosen[name] not in known:
            return Refused(f"{name} is {chosen[name]!r}, not one of: {', '.join(map(str, known))}")
    if space.interleaved is None or chosen[SPLITS] != INTERLEAVED:
        return chosen[PACKS], chosen[SPLITS]
    try:
        return chosen[PACKS], space.interleaved.cut(chosen[INTERLEAVE], chosen[GROUPS])
    except ScheduleError as error:
        return Refused(f"{INTERLEAVE}: {error}")


def _regroup(space: Space, key: _Key, own: Variant, way: str) -> Schedule | Refused:
    """The rules' schedule for a grouping; kernels that a later level refuses have a conservative fallback."""
    if way == own.ways[0]:
        return own.base
    if (key, way) not in space.regrouped:
        space.regrouped[key, way] = _plan_way(space.trials, own, way)
    return space.regrouped[key, way]


def _plan_way(trials: TrialLowering, own: Variant, way: str) -> Schedule | Refused:
    steps = own.fallbacks
    while True:
        try:
            found = fusion.regroup(own.program, own.base, fusion.parse(way), trials.arch, steps)
        except ScheduleError as error:
            return Refused(f"as kernels {way}: {error}")
        done = trials.lower(found)
        if done.ok or not done.kernel or steps.exhausted(done.kernel):
            return found
        steps = steps.after(done.kernel, done.excess)


def _turn(k: KernelSpace, values: Mapping[str, object]) -> KernelPlan:
    engine = str(values.get(k.engine, next(iter(k.plans))))
    if engine not in k.plans:
        raise ScheduleError(f"no plan with the engine {engine}: its products or sizes do not suit it")
    chosen: dict[str, Any] = {}
    for p in k.parameters[engine]:
        name = k.label(engine, p.name)
        if name in values:
            chosen[p.name] = values[name]
    return apply(k.plans[engine], k.shapes[engine], chosen)


def examine(space: Space, values: Mapping[str, object]) -> Lowered:
    """The module under the choices ``values``, and the reason where they are refused."""
    found = point(space, values)
    if isinstance(found, Refused):
        return Lowered(None, found.reason)
    trials, schedule = found
    return trials.lower(schedule)


def neighbours(space: Space, values: Mapping[str, object]) -> list[tuple[str, object]]:
    """Every single change of ``values`` that has an effect."""
    out = []
    now = schedule_of(space, values)
    for c in choices(space):
        for value in c.values:
            if value == values.get(c.name):
                continue
            if schedule_of(space, {**values, c.name: value}) != now:
                out.append((c.name, value))
    return out

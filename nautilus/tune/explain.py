"""``nautilusc explain``: the schedule of a spec, its source, its alternatives, and its distance from the roofline.

The alternatives are all schedules that differ from the chosen one in one choice of the space.  Each runs through the
passes.  The cost model ranks the legal ones.  A refused one is listed with the reason and, where the cost model has an
estimate, with the time that it would take.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nautilus.core.errors import ScheduleError
from nautilus.core.records import dataclass
from nautilus.core.schedule import CopyPlan, KernelPlan, Schedule
from nautilus.core.schedule.mapping import is_fused_into_consumer
from nautilus.core.text.words import counted
from nautilus.cost.model import Estimate, estimate
from nautilus.cost.roofline import Roofline, roofline
from nautilus.cuda.host.co_residency import need
from nautilus.driver import Request, Result, compile_checked, compile_file
from nautilus.passes.compilation import Variants
from nautilus.passes.manager import steps
from nautilus.passes.pipelines import CUDA, MA_TILE, SCALAR
from nautilus.passes.selection import copy_choice
from nautilus.passes.selection.with_variants import may_vary
from nautilus.remarks.remarks import Watch, remarks
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.ir import Program
from nautilus.tune.describe import describe_kernel, estimate_data, kernel_lines
from nautilus.tune.search.trial_lowering import Lowered, TrialLowering, trials_of
from nautilus.tune.space.schedules import Space, defaults, examine, neighbours, schedule_of, space_of
from nautilus.tune.variants import describe_variants, variant_lines

_SHOWN = 8  # alternatives of each kind in the text form
_CLOSE = 0.002  # relative difference in time that counts as equal


@dataclass(frozen=True, slots=True)
class Alternative:
    """One change of one choice.  ``seconds`` is None without an estimate, ``reason`` None for a legal schedule."""

    choice: str
    value: object
    seconds: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Chosen:
    """A schedule, its program, its source, and the point of the space that gives it, if known."""

    trials: TrialLowering
    schedule: Schedule
    source: str
    point: tuple[Space, Mapping[str, object]] | None = None


def chosen(request: Request, rows: Sequence[Any], done: Result | None = None) -> Chosen:
    """The schedule that a compilation of ``request`` uses: from the file, the database, or the default rules.

    ``done``: the result of that compilation, with the kernels that ptxas rejected.
    """
    trials, given = trials_of(request)
    _remember(trials, done)
    if given.kernels:
        return Chosen(trials, given, "the schedule file")
    if request.lookup is not None and rows and not (done is not None and done.lookup_failure):
        own, full = trials_of(replace(request, schedule=rows[0].read_schedule()))
        if values := dict(rows[0].values):
            space = space_of(trials)
            found = schedule_of(space, values)
            if isinstance(found, Schedule) and found.kernels == full.kernels and full.inline == given.inline:
                return Chosen(trials, full, "the tuning database", (space, defaults(space) | values))
        _remember(own, done)
        return Chosen(own, full, "the tuning database")
    schedule = trials.base_schedule(given)
    if done is not None and done.context.fallbacks.taken:
        lighter = trials.base_schedule(given, done.context.fallbacks)
        if lighter != schedule:
            names = ", ".join(kernel for kernel, _ in done.context.fallbacks.taken)
            return Chosen(trials, lighter, f"the default rules, after the first plan of {names} was rejected")
    space = space_of(trials)
    return Chosen(trials, schedule, "the default rules", (space, defaults(space)))


def _remember(trials: TrialLowering, done: Result | None) -> None:
    """Let ``trials`` know the kernels of ``done``, a compilation of the same spec, so that they are not made again."""
    if done is not None and done.context.schedule is not None:
        trials.remember(done.context.schedule, done.modules[MA_TILE.name])


def _carried_out(request: Request, watch: Watch) -> Result | None:
    """The result of the compilation with kernels that ptxas accepts; None if the schedule is refused."""
    try:
        return compile_checked(request, [watch])
    except ScheduleError:
        return None


def _fault(done: Lowered, compiled: Result | None, schedule: Schedule) -> str | None:
    """Why ``schedule``, which gave ``done``, is refused; None where it is not.

    The compilation decides, because ptxas may find registers that the rules do not count on.
    """
    if compiled is None or compiled.unchecked or compiled.context.schedule != schedule:
        return done.fault or (compiled.ptxas_failure if compiled is not None else "") or None
    return compiled.ptxas_failure or None


def explain(request: Request, every: bool = True) -> dict[str, Any]:
    """Schedule, estimate, roofline, alternatives and measurements of ``request`` as JSON data.

    ``every``: with the alternatives and the variants, of which each is lowered; None stands for them otherwise.
    Raises ScheduleError where no schedule is legal.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))
    rows = measured(request)
    watch = Watch()
    compiled = _carried_out(request, watch)
    c = chosen(request, rows, compiled)
    program, done = c.trials.program, c.trials.lower(c.schedule)
    if done.module is None:
        raise ScheduleError(done.fault or "no legal schedule")
    predicted = estimate(done.module, request.arch)
    plans = {k.name: k for k in c.schedule.kernels}
    own = c.trials.split(c.schedule)
    others = [] if c.point is None or not every else alternatives(*c.point)
    legal, refused = split(others)
    return {
        "spec": str(request.path),
        "arch": request.arch,
        "precision": request.precision,
        "from": c.source,
        "fault": _fault(done, compiled, c.schedule),
        "unchecked": compiled.unchecked if compiled is not None else "",
        **_choices(c.schedule),
        "copy_alternatives": _copies(c, request) if every else [],
        "kernels": [
            describe_kernel(own, plans[k.name], k, e, request.arch, _joined(c.schedule, own, plans[k.name]))
            for k, e in zip(done.module.kernels, predicted.kernels, strict=True)
            if k.name in plans
        ],
        "predicted": estimate_data(predicted, done.module),
        "roofline": _roofline_data(roofline(program, predicted, request.arch)),
        "needs": "" if compiled is None else need(compiled.modules[MA_TILE.name]),
        "varies": compiled is not None and may_vary(replace(request, until=CUDA.name), compiled),
        "variants": describe_variants(_variants(request, compiled)) if every else None,
        "space": _space_size(c.point[0]) if c.point is not None else None,
        "alternatives": [_plain(a, predicted) for a in legal] if every else None,
        "refused": [_plain(a, predicted) for a in refused] if every else None,
        "measured": [_row(r) for r in rows],
        "remarks": [] if compiled is None else _remarks(compiled, watch, request),
    }


def _choices(schedule: Schedule) -> dict[str, Any]:
    """The choices of ``schedule`` that are not about one kernel."""
    return {
        "inlined": list(schedule.inline or ()),
        "packed": [f"{p.op} along {p.axis} by {p.size}" for p in schedule.packs or ()],
        "split": [f"{p.op} over {p.axis} into {p.splits} chunks" for p in schedule.splits or ()],
        "copied": [_copy(x) for x in schedule.copies or ()],
    }


def _variants(request: Request, compiled: Result | None) -> Variants | None:
    """The variants that a compilation of ``request`` to CUDA ends with; ``compiled``: the result without them."""
    whole = replace(request, until=CUDA.name)
    return compile_checked(whole).variants if compiled is not None and may_vary(whole, compiled) else None


def _roofline_data(roof: Roofline) -> dict[str, Any]:
    return {
        "bound": roof.bound,
        "share": round(roof.share, 4),
        "unit": roof.unit,
        "unit_share": round(roof.unit_share, 4),
        "floors_microseconds": {n: round(s * 1e6, 3) for n, s in roof.floors.items()},
    }


def _remarks(compiled: Result, watch: Watch, request: Request) -> list[dict[str, Any]]:
    found = (r.diagnostic() for r in remarks(compiled, watch, request.gives_kernels))
    return [d.as_dict() | {"text": d.text()} for d in found]


def _copy(plan: CopyPlan) -> str:
    return f"{plan.op} for {' and '.join(plan.readers)}"


def _copies(c: Chosen, request: Request) -> list[dict[str, Any]]:
    """What the readers of large definitions could compute again, with the predicted time of the whole program."""
    if c.schedule.copies is None or c.trials.origin is None or request.schedule is not None:
        return []
    module: Any = c.trials.origin.before
    context = replace(c.trials.origin.context, schedule=Schedule(inline=c.schedule.inline))
    for step in steps(SCALAR)[[s.name for s in steps(SCALAR)].index("inline") :]:
        if step.name == "rematerialise":
            break
        module = step.run(module, context)
    return [
        {
            "copied": [_copy(x) for x in a.copies],
            "microseconds": None if a.trial is None else round(a.trial.seconds * 1e6, 3),
        }
        for a in copy_choice.alternatives(module, context, every=True)
    ]


def _joined(schedule: Schedule, program: Program, plan: KernelPlan) -> tuple[str, ...]:
    """Definitions of the split-K kernels that are fused into the kernel of ``plan``."""
    defs = read_defs(program)
    read = {ld.buffer for o in plan.ops if o in defs for ld in defs[o].reads()} - set(plan.ops)
    found = [k for k in schedule.kernels if is_fused_into_consumer(k.mapping) and read & set(k.ops)]
    return tuple(o for k in found for o in (*_joined(schedule, program, k), *k.ops))


def _space_size(space: Space) -> dict[str, int]:
    base = space.base
    interleaved = 1 if space.interleaved is None else len(space.interleaved.blocks) * len(space.interleaved.groups)
    points = [sum(_points(len(x.values) for x in k.parameters[e]) for e in k.plans) for k in base.kernels]
    return {
        "choices": len(defaults(space)),
        "points": len(space.splits) * interleaved * len(space.packs) * len(space.ways) * _points(points),
    }


def _points(sizes: Any) -> int:
    out = 1
    for n in sizes:
        out *= n
    return out


def alternatives(space: Space, values: Mapping[str, object]) -> list[Alternative]:
    """Every schedule one choice away from ``values``."""
    out = []
    for name, value in neighbours(space, values):
        done = examine(space, {**values, name: value})
        seconds = estimate(done.module, space.trials.arch).seconds if done.module is not None else None
        out.append(Alternative(name, value, seconds, done.fault))
    return out


def split(found: list[Alternative]) -> tuple[list[Alternative], list[Alternative]]:
    """(legal, refused), each in the order of estimates; alternatives without an estimate come last."""
    order = sorted(found, key=lambda a: (a.seconds is None, a.seconds or 0.0))
    return [a for a in order if a.reason is None], [a for a in order if a.reason is not None]


def _plain(a: Alternative, chosen: Estimate) -> dict[str, Any]:
    ratio = None if a.seconds is None else round(a.seconds / chosen.seconds, 4)
    out: dict[str, Any] = {"choice": a.choice, "value": a.value, "time_ratio": ratio}
    return out if a.reason is None else out | {"reason": a.reason}


def measured(request: Request) -> list[Any]:
    """Rows of the tuning databases for this spec at these sizes, one for each schedule, the preferred one first."""
    from nautilus.tune.database import lookup, rows
    from nautilus.tune.database import store as database

    spec = compile_file(replace(request, until="spec", schedule=None, lookup=None)).modules["spec"]
    if not spec.family:
        return []
    key = rows.key_of(spec, request.arch, request.precision).hash
    known = [*database.select(database.user_path(), key), *database.select(database.SHIPPED, key)]
    best: dict[str, Any] = {}
    for r in lookup.ranked(known, lookup.device_here):
        best.setdefault(r.schedule_hash, r)
    return list(best.values())


def _row(r: Any) -> dict[str, Any]:
    return {
        "schedule": r.schedule_hash,
        "microseconds": round(r.seconds * 1e6, 3),
        "device": r.device,
        "rules": r.rules,
        "predicted_microseconds": None if r.estimate is None else round(r.estimate * 1e6, 3),
        "values": dict(r.values),
    }


def text(e: Mapping[str, Any]) -> str:
    """The text of :func:`explain`."""
    p, roof = e["predicted"], e["roofline"]
    lines = [f"{e['spec']} for {e['arch']}, precision {e['precision']}: schedule from {e['from']}"]
    if e["inlined"]:
        lines.append(f"inlined into their readers: {', '.join(e['inlined'])}")
    lines += [f"{word}: {'; '.join(e[word])}" for word in ("packed", "split") if e[word]]
    lines += [f"computed again by readers: {_copied_text(a)}" for a in e["copy_alternatives"]]
    if e["fault"]:
        lines.append(f"this schedule is refused: {e['fault']}")
    if e["unchecked"]:
        lines.append(f"ptxas did not check the wgmma instructions ({e['unchecked']})")
    for k in e["kernels"]:
        lines += ["", *kernel_lines(k)]
    rate = f", {p['tflops']:.4g} TFLOP/s" if p["tflops"] else ""
    lines += ["", f"predicted: {p['microseconds']:.4g} us{rate}, {p['bytes'] / 1e6:.4g} MB to and from memory"]
    for k in p["kernels"]:
        parts = ", ".join(f"{n} {s:.4g}" for n, s in k["parts_microseconds"].items() if s >= 0.05)
        lines.append(f"  {k['name']}: {k['microseconds']:.4g} us at {k['clock_ghz']} GHz; each resource alone: {parts}")
    floors = ", ".join(f"{n} {s:.4g} us" for n, s in roof["floors_microseconds"].items())
    lines.append(f"roofline: {roof['share']:.0%} of the {roof['bound']} bound (lower bounds: {floors})")
    lines.append(f"binding unit: {roof['unit']}, {roof['unit_share']:.0%} of the predicted time")
    lines += [line for r in e["remarks"] for line in ("", *r["text"].splitlines())]
    if e["needs"]:
        lines.append(f"needs a device that runs {e['needs']}; on others the launcher chooses another variant")
    lines += variant_lines(e["variants"])
    if e["varies"] and e["alternatives"] is None:
        lines += ["", "the launcher may choose among several variants; --alternatives shows them"]
    lines += _choices_text(e)
    return "\n".join([*lines, *_measured_text(e["measured"])]) + "\n"


def _copied_text(a: Mapping[str, Any]) -> str:
    time = "refused" if a["microseconds"] is None else f"{a['microseconds']:.4g} us predicted"
    return f"{', '.join(a['copied']) or 'nothing'}: {time}"


def _choices_text(e: Mapping[str, Any]) -> list[str]:
    if e["space"] is None:
        return []
    space = f"search space: {counted(e['space']['choices'], 'choice')}, {e['space']['points']:.3g} points"
    if e["alternatives"] is None:
        return ["", f"{space}; --alternatives tries every single change"]
    lines = ["", f"{space}; single changes:"]
    better = [a for a in e["alternatives"] if a["time_ratio"] is not None and a["time_ratio"] < 1 - _CLOSE]
    lines += [f"  faster by the cost model: {_change(a)}" for a in better[:_SHOWN]]
    worse = [a for a in e["alternatives"] if a not in better]
    lines += [f"  {_change(a)}" for a in worse[: _SHOWN - min(len(better), _SHOWN // 2)]]
    hidden = len(e["alternatives"]) - min(len(better), _SHOWN) - min(len(worse), _SHOWN - min(len(better), _SHOWN // 2))
    if hidden > 0:
        lines.append(f"  ({hidden} more, slower)")
    if e["refused"]:
        lines.append("refused:")
        lines += [f"  {_change(a)}: {a['reason']}" for a in e["refused"][:_SHOWN]]
        if len(e["refused"]) > _SHOWN:
            lines.append(f"  ({len(e['refused']) - _SHOWN} more)")
    return lines


def _change(a: Mapping[str, Any]) -> str:
    ratio = "" if a["time_ratio"] is None else f" ({100 * (a['time_ratio'] - 1):+.1f}% time)"
    return f"{a['choice']} = {a['value']}{ratio}"


def _measured_text(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return ["", "measured: the tuning databases have no rows for these sizes"]
    best = f"the best {rows[0]['microseconds']:.4g} us on {rows[0]['device']}"
    lines = ["", f"measured: {counted(len(rows), 'schedule')}, {best}"]
    rules = next((r for r in rows if r["rules"]), None)
    if rules is not None:
        gain = rules["microseconds"] / rows[0]["microseconds"]
        lines.append(f"  default schedule {rules['microseconds']:.4g} us; speedup of the best {gain:.3f}")
    return [*lines, *(f"  slower: {r['schedule']} {r['microseconds']:.4g} us" for r in rows[1 : 1 + _SHOWN])]

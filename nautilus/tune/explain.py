"""``nautilusc explain``: which schedule, why this one, what was refused, and how far from the machine's limits.

The alternatives are all schedules that differ from the chosen one in one choice of the space.  Each goes through
the passes; those that come out legal are ranked by the cost model, those that do not say why, and the model's
time for a refused one says whether it would have been worth having.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from nautilus.core.errors import ScheduleError
from nautilus.driver import Request, stage_of
from nautilus.passes.pipelines import SPEC
from nautilus.scalar.ops import Program
from nautilus.tune.describe import describe_kernel, estimate_data, kernel_lines, roofline
from nautilus.tune.model import Estimate, estimate
from nautilus.tune.road import base_schedule, cut_program, lower_program, program_of
from nautilus.tune.space import defaults, examine, neighbours, space_of

_SHOWN = 8  # alternatives of each kind in the text form
_CLOSE = 0.002  # of the time: as good


@dataclass(frozen=True, slots=True)
class Alternative:
    """One change of one choice. ``seconds`` None: nothing to estimate."""

    choice: str
    value: object
    seconds: float | None
    reason: str | None


def explain_spec(spec: Path, **options: Any) -> None:
    """The command."""
    from nautilus.cli import make_request

    request = make_request(spec, options, "ma-tile")
    if stage_of(request.path) is not SPEC:
        raise click.UsageError(f"explain needs a spec (.naut), not {spec}")
    found = explain(request)
    if options["as_json"]:
        click.echo(json.dumps(found))
    elif not options["quiet"]:
        click.echo(text(found), nl=False)


def explain(request: Request) -> dict[str, Any]:
    """Everything that is known about the schedule of ``request``, as plain data."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))
    program, given = program_of(request)
    is_given = bool(given.kernels)
    schedule = given if is_given else base_schedule(program, request.arch, request.precision, given)
    done = lower_program(program, schedule, request.arch, request.precision)
    if done.module is None:
        raise ScheduleError(done.fault or "no legal schedule")
    predicted = estimate(done.module, request.arch)
    roof = roofline(program, predicted, request.arch)
    plans = {k.name: k for k in schedule.kernels}
    own = cut_program(program, schedule, request.arch)
    kernels = [
        describe_kernel(own, plans[k.name], k, e, request.arch)
        for k, e in zip(done.module.kernels, predicted.kernels, strict=True)
        if k.name in plans
    ]
    values = None if is_given else defaults(program, request.arch)
    others = [] if values is None else alternatives(program, request.arch, values, request.precision)
    legal, refused = split(others, predicted)
    return {
        "spec": str(request.path),
        "arch": request.arch,
        "precision": request.precision,
        "from": "the schedule file" if is_given else "the default rules",
        "fault": done.fault,
        "inlined": list(schedule.inline or ()),
        "kernels": kernels,
        "predicted": estimate_data(predicted, done.module),
        "roofline": {
            "bound": roof.bound,
            "share": round(roof.share, 4),
            "floors_microseconds": {n: round(s * 1e6, 3) for n, s in roof.floors.items()},
        },
        "space": _space_size(program, request.arch) if values is not None else None,
        "alternatives": [_plain(a, predicted) for a in legal],
        "refused": [_plain(a, predicted) for a in refused],
        "measured": measured(request),
    }


def _space_size(program: Program, arch: str) -> dict[str, int]:
    space = space_of(program, arch)
    base = space.base
    points = [sum(_points(len(x.values) for x in k.knobs[e]) for e in k.plans) for k in base.kernels]
    return {
        "choices": len(defaults(program, arch)),
        "points": len(space.splits) * len(space.packs) * len(base.ways) * _points(points),
    }


def _points(sizes: Any) -> int:
    out = 1
    for n in sizes:
        out *= n
    return out


def alternatives(program: Program, arch: str, values: Mapping[str, object], precision: str) -> list[Alternative]:
    """Every schedule one choice away from ``values``."""
    out = []
    for name, value in neighbours(program, arch, values):
        done = examine(program, arch, {**values, name: value}, precision)
        seconds = estimate(done.module, arch).seconds if done.module is not None else None
        out.append(Alternative(name, value, seconds, done.fault))
    return out


def split(found: list[Alternative], chosen: Estimate) -> tuple[list[Alternative], list[Alternative]]:
    """(legal, refused), each the best first; refused ones that nothing is known of come last."""
    del chosen
    order = sorted(found, key=lambda a: (a.seconds is None, a.seconds or 0.0))
    return [a for a in order if a.reason is None], [a for a in order if a.reason is not None]


def _plain(a: Alternative, chosen: Estimate) -> dict[str, Any]:
    ratio = None if a.seconds is None else round(a.seconds / chosen.seconds, 4)
    out: dict[str, Any] = {"choice": a.choice, "value": a.value, "time_ratio": ratio}
    return out if a.reason is None else out | {"reason": a.reason}


def measured(request: Request) -> list[dict[str, Any]]:
    """What the tuning databases know of this spec at these sizes, the fastest first."""
    from nautilus.driver import compile_file
    from nautilus.passes.manager import Context

    try:
        from nautilus.tune import database, lookup, rows
    except ImportError:
        return []
    spec = compile_file(Request(request.path, request.arch, request.dims, until="spec")).modules["spec"]
    if not getattr(spec, "family", ""):
        return []
    context = Context(request.arch, request.precision)
    key = rows.key_of(spec, context.arch, context.precision).hash
    found = lookup.ranked([*database.select(database.user_path(), key), *database.select(database.SHIPPED, key)], str)
    best: dict[str, Any] = {}
    for r in found:
        best.setdefault(r.schedule_hash, r)
    return [_row(r) for r in sorted(best.values(), key=lambda r: r.seconds)]


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
    """The words for :func:`explain`."""
    p, roof = e["predicted"], e["roofline"]
    lines = [f"{e['spec']} for {e['arch']}, precision {e['precision']}: schedule from {e['from']}"]
    if e["inlined"]:
        lines.append(f"inlined into their readers: {', '.join(e['inlined'])}")
    if e["fault"]:
        lines.append(f"this schedule will not do: {e['fault']}")
    for k in e["kernels"]:
        lines += ["", *kernel_lines(k)]
    rate = f", {p['tflops']:.4g} TFLOP/s" if p["tflops"] else ""
    lines += ["", f"predicted: {p['microseconds']:.4g} us{rate}, {p['bytes'] / 1e6:.4g} MB to and from memory"]
    for k in p["kernels"]:
        parts = ", ".join(f"{n} {s:.4g}" for n, s in k["parts_microseconds"].items() if s >= 0.05)
        lines.append(f"  {k['name']}: {k['microseconds']:.4g} us at {k['clock_ghz']} GHz; each alone: {parts}")
    floors = ", ".join(f"{n} {s:.4g} us" for n, s in roof["floors_microseconds"].items())
    lines.append(f"roofline: {roof['share']:.0%} of what {roof['bound']} allows (floors: {floors})")
    lines += _choices_text(e)
    return "\n".join([*lines, *_measured_text(e["measured"])]) + "\n"


def _choices_text(e: Mapping[str, Any]) -> list[str]:
    if e["space"] is None:
        return []
    lines = ["", f"the space: {e['space']['choices']} choices, {e['space']['points']:.3g} points; one change away:"]
    better = [a for a in e["alternatives"] if a["time_ratio"] is not None and a["time_ratio"] < 1 - _CLOSE]
    lines += [f"  the model would rather have {_change(a)}" for a in better[:_SHOWN]]
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
        return ["", "measured: nothing in the tuning databases for these sizes"]
    lines = ["", f"measured: {len(rows)} schedules, the best {rows[0]['microseconds']:.4g} us on {rows[0]['device']}"]
    rules = next((r for r in rows if r["rules"]), None)
    if rules is not None:
        gain = rules["microseconds"] / rows[0]["microseconds"]
        lines.append(f"  the rules' schedule {rules['microseconds']:.4g} us: the best beats it {gain:.3f} times")
    return [*lines, *(f"  beaten: {r['schedule']} {r['microseconds']:.4g} us" for r in rows[1 : 1 + _SHOWN])]

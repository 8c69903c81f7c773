"""The report as a table for people and as a dictionary for ``--json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nautilus.bench.ceilings import COPY, PRODUCT
from nautilus.bench.contenders import OURS, Absent, Row, ratio
from nautilus.bench.protocol import Timing

_HEADS = (
    "contender", "us", "spread", "TFLOP/s", "GB/s", "% product", "% copy", "us sus.", "spread", "TFLOP/s",
    "ours/peer", "sus.", "error", "check",
)  # fmt: skip
_SUSTAINED = (7, 8, 9, 11)  # columns of what ``--rounds 0`` does not time


@dataclass(frozen=True)
class Report:
    """One spec's run. ``about`` is what it was run on and with; it goes into ``--json`` as it is."""

    name: str
    rows: Sequence[Row]
    absent: Sequence[Absent]
    limits: tuple[float, float]  # of the spreads: cool, sustained
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Our result is right."""
        verdict = self.ours.verdict
        return verdict is not None and verdict.ok

    @property
    def kinds(self) -> tuple[str, ...]:
        """The protocols that anything was timed by; the first one always counts."""
        return ("cool", "sustained") if any(r.sustained is not None for r in self.rows) else ("cool",)

    @property
    def ours(self) -> Row:
        return next(r for r in self.rows if r.name == OURS)

    def ratio(self, row: Row, kind: str) -> float | str | None:
        """Ours beside ``row``; a text says why not; None for ours itself, for ceilings, and for what was not asked."""
        if row.name == OURS or row.is_ceiling or kind not in self.kinds:
            return None
        return ratio(self.ours, row, kind, self.limits[kind == "sustained"])

    def ceiling(self, name: str) -> Row | None:
        """A ceiling that was measured well enough to be a measure."""
        for r in self.rows:
            if r.name == name and r.cool is not None and r.cool.spread <= self.limits[0]:
                return r
        return None


def rates(row: Row, timing: Timing | None) -> tuple[float | None, float | None]:
    """TFLOP/s and GB/s; None where there is no time, or no such work."""
    if timing is None:
        return None, None
    tera = row.flops / timing.median * 1e-12
    giga = row.bytes / timing.median * 1e-9
    return (tera or None), (giga or None)


def shares(report: Report, row: Row) -> tuple[float | None, float | None]:
    """Of the measured product and copy ceilings, by cool times."""
    tera, giga = rates(row, row.cool)
    product, copy = report.ceiling(PRODUCT), report.ceiling(COPY)
    top = rates(product, product.cool)[0] if product is not None else None
    most = rates(copy, copy.cool)[1] if copy is not None else None
    return (tera / top if tera and top else None), (giga / most if giga and most else None)


def text(report: Report) -> str:
    """The table, why ratios are missing, who is absent, and the conventions."""
    about = report.about
    lines = [f"{report.name}: {about.get('device', '?')}, {about.get('arch', '?')}, {about.get('sizes', '')}"]
    cells = [list(_HEADS), *(_cells(report, r) for r in report.rows)]
    if "sustained" not in report.kinds:
        cells = [[x for c, x in enumerate(line) if c not in _SUSTAINED] for line in cells]
    widths = [max(len(line[c]) for line in cells) for c in range(len(cells[0]))]
    for line in cells:
        padded = [x.ljust(w) if c in (0, len(line) - 1) else x.rjust(w)
                  for c, (x, w) in enumerate(zip(line, widths, strict=True))]  # fmt: skip
        lines.append("  ".join(padded).rstrip())
    for row in report.rows:
        why = {k: r for k in ("cool", "sustained") if isinstance(r := report.ratio(row, k), str)}
        if why.get("cool") == why.get("sustained") and why:
            lines.append(f"no ratio to {row.name}: {why['cool']}")
        else:
            lines += [f"no {kind} ratio to {row.name}: {reason}" for kind, reason in why.items()]
    lines += [f"{r.name}: {r.trouble}" for r in report.rows if r.trouble]
    verdict = report.ours.verdict
    if verdict is not None and not verdict.ok:
        lines.append(f"ours is wrong: {verdict.detail}")
    lines += [f"{r.name}: {r.note}" for r in report.rows if r.note]
    lines += [f"{a.name}: {a.reason}" for a in report.absent]
    return "\n".join(lines) + "\n"


def _cells(report: Report, row: Row) -> list[str]:
    tera, giga = rates(row, row.cool)
    hot, _ = rates(row, row.sustained)
    product, copy = (None, None) if row.is_ceiling else shares(report, row)
    verdict = row.verdict
    said = "" if row.is_ceiling else "not checked" if verdict is None else "ok" if verdict.ok else "WRONG"
    return [
        row.name,
        _time(row.cool),
        _spread(row.cool, report.limits[0]),
        _number(tera, ".1f"),
        _number(giga, ".0f"),
        _number(product and 100 * product, ".1f"),
        _number(copy and 100 * copy, ".1f"),
        _time(row.sustained),
        _spread(row.sustained, report.limits[1]),
        _number(hot, ".1f"),
        _ratio(report.ratio(row, "cool")),
        _ratio(report.ratio(row, "sustained")),
        "" if verdict is None else f"{verdict.error:.1e}",
        said,
    ]


def _time(t: Timing | None) -> str:
    return "-" if t is None else f"{t.median * 1e6:.1f}"


def _spread(t: Timing | None, limit: float) -> str:
    return "-" if t is None else f"{t.spread:.1%}" + ("!" if t.spread > limit else "")


def _number(x: float | None, form: str) -> str:
    return "-" if x is None else format(x, form)


def _ratio(r: float | str | None) -> str:
    return "" if r is None else "refused" if isinstance(r, str) else f"{r:.3f}"


def as_dict(report: Report) -> dict[str, Any]:
    """Everything, every sample included."""
    return {
        "spec": report.name,
        "ok": report.ok,
        **report.about,
        "spread_limits": {"cool": report.limits[0], "sustained": report.limits[1]},
        "contenders": [_entry(report, r) for r in report.rows],
        "absent": [{"name": a.name, "reason": a.reason} for a in report.absent],
    }


def _entry(report: Report, row: Row) -> dict[str, Any]:
    product, copy = shares(report, row)
    out: dict[str, Any] = {"name": row.name, "ceiling": row.is_ceiling, "note": row.note, "trouble": row.trouble}
    out |= {"flops": row.flops, "bytes": row.bytes, "product_share": product, "copy_share": copy}
    for kind in ("cool", "sustained"):
        timing: Timing | None = getattr(row, kind)
        tera, giga = rates(row, timing)
        out[kind] = None if timing is None else {
            "us": timing.median * 1e6, "spread": timing.spread, "tflops": tera, "gbs": giga,
            "samples_us": [s * 1e6 for s in timing.samples],
        }  # fmt: skip
        r = report.ratio(row, kind)
        out[f"ratio_{kind}"] = r if isinstance(r, float) else None
        out[f"refused_{kind}"] = r if isinstance(r, str) else None
    v = row.verdict
    out["check"] = None if v is None else {
        "ok": v.ok, "error": _finite(v.error), "allowed": v.allowed, "detail": v.detail,
    }  # fmt: skip
    return out


def _finite(x: float) -> float | None:
    """JSON has no inf."""
    return x if x < float("inf") else None

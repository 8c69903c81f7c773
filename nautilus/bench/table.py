"""The report of a benchmark as a text table and as a dictionary for ``--json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from nautilus.bench.ceilings import COPY, GEMM
from nautilus.bench.contenders import OURS, Absent, Row, ratio
from nautilus.bench.protocol import Timing
from nautilus.core.records import dataclass

_HEADS = (
    "contender", "us", "spread", "TFLOP/s", "GB/s", "% GEMM", "% copy", "us sus.", "spread", "TFLOP/s",
    "ours/peer", "sus.", "error", "check",
)  # fmt: skip
_SUSTAINED = (7, 8, 9, 11)  # columns that ``--rounds 0`` omits


@dataclass(frozen=True)
class Report:
    """The run of one spec.  ``about`` describes device, versions and settings and is part of ``--json``."""

    name: str
    rows: Sequence[Row]
    absent: Sequence[Absent]
    limits: tuple[float, float]  # largest spreads with a ratio: of cool and of sustained times
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether our result is right, as far as it was checked."""
        verdict = self.ours.verdict
        return verdict is None or verdict.ok

    @property
    def kinds(self) -> tuple[str, ...]:
        """The protocols in use; ``cool`` always is."""
        return ("cool", "sustained") if any(r.sustained is not None for r in self.rows) else ("cool",)

    @property
    def ours(self) -> Row:
        """The row of the kernel of this compiler."""
        return next(r for r in self.rows if r.name == OURS)

    def ratio(self, row: Row, kind: str) -> float | str | None:
        """The speedup of ours over ``row``, or the reason for its absence; None for ours, ceilings and unused kinds."""
        if row.name == OURS or row.is_ceiling or kind not in self.kinds:
            return None
        return ratio(self.ours, row, kind, self.limits[kind == "sustained"])

    def ceiling(self, name: str) -> Row | None:
        """The ceiling ``name``; None where it is missing or its spread exceeds the limit."""
        for r in self.rows:
            if r.name == name and r.cool is not None and r.cool.spread <= self.limits[0]:
                return r
        return None


def rates(row: Row, timing: Timing | None) -> tuple[float | None, float | None]:
    """TFLOP/s and GB/s; None without a time, and for a contender without such work."""
    if timing is None:
        return None, None
    tera = row.flops / timing.median * 1e-12
    giga = row.bytes / timing.median * 1e-9
    return (tera or None), (giga or None)


def shares(report: Report, row: Row) -> tuple[float | None, float | None]:
    """The shares of the measured GEMM and copy ceilings by cool times; None without a ceiling."""
    tera, giga = rates(row, row.cool)
    product, copy = report.ceiling(GEMM), report.ceiling(COPY)
    top = rates(product, product.cool)[0] if product is not None else None
    most = rates(copy, copy.cool)[1] if copy is not None else None
    return (tera / top if tera and top else None), (giga / most if giga and most else None)


def text(report: Report) -> str:
    """The table, followed by the reasons for missing ratios, the failures, the notes and the absent peers."""
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
    lines += [f"{r.name}: {r.failure}" for r in report.rows if r.failure]
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
        cell(tera, ".1f"),
        cell(giga, ".0f"),
        cell(product and 100 * product, ".1f"),
        cell(copy and 100 * copy, ".1f"),
        _time(row.sustained),
        _spread(row.sustained, report.limits[1]),
        cell(hot, ".1f"),
        _ratio(report.ratio(row, "cool")),
        _ratio(report.ratio(row, "sustained")),
        "" if verdict is None else f"{verdict.error:.1e}",
        said,
    ]


def _time(t: Timing | None) -> str:
    return "-" if t is None else f"{t.median * 1e6:.1f}"


def _spread(t: Timing | None, limit: float) -> str:
    return "-" if t is None else f"{t.spread:.1%}" + ("!" if t.spread > limit else "")


def cell(x: float | None, form: str) -> str:
    """A number in a table; a dash where there is none."""
    return "-" if x is None else format(x, form)


def _ratio(r: float | str | None) -> str:
    return "" if r is None else "refused" if isinstance(r, str) else f"{r:.3f}"


def as_dict(report: Report) -> dict[str, Any]:
    """The whole report with every sample as JSON data."""
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
    out: dict[str, Any] = {"name": row.name, "ceiling": row.is_ceiling, "note": row.note, "failure": row.failure}
    out |= {"flops": row.flops, "bytes": row.bytes, "gemm_share": product, "copy_share": copy}
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
    """``x``, or None for inf, which JSON lacks."""
    return x if x < float("inf") else None

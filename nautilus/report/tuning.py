"""The tuning history of a spec in a report: what was measured, and where the fast schedules lie."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from nautilus.frontend.spec import Spec
from nautilus.passes.manager import Context
from nautilus.tune.database.rows import Row, key_of
from nautilus.tune.database.store import SHIPPED, select, user_path

_BEST = 0.1  # share of the measured schedules that count as fast
_WIDTH, _HEIGHT = 600, 160  # pixels of the plot


def stored(spec: Spec, context: Context) -> list[Row]:
    """The rows of the databases for ``spec`` in ``context``, in the order in which they were measured."""
    key = key_of(spec, context.arch, context.precision).hash
    return sorted([*select(SHIPPED, key), *select(user_path(), key)], key=lambda r: r.time)


def tuning(rows: Sequence[Row]) -> str:
    """The history as HTML; empty where nothing was measured."""
    timed = [(r, s) for r in rows if r.measure == "gpu" and r.state == "ok" and (s := r.seconds) is not None]
    if not timed:
        return ""
    best, seconds = min(timed, key=lambda t: t[1])
    rules = f", by rules {1e6 * best.rules_seconds:.4g} us" if best.rules_seconds else ""
    predicted = f", predicted {1e6 * best.estimate:.4g} us" if best.estimate is not None else ""
    head = (
        f"<p>{len(timed)} of {len(rows)} stored schedules have a time. The best: {1e6 * seconds:.4g} us on "
        f"{escape(best.device)}{rules}{predicted}.</p>"
    )
    return f"<div id=tuning>{head}{_plot([s for _, s in timed])}{_winners(timed)}</div>"


def _plot(seconds: Sequence[float]) -> str:
    """Each measurement as a point in the order of time, and the best so far as a line; the axis begins at 0."""
    most = max(seconds)
    dots, line, best = [], [], most
    for n, s in enumerate(seconds):
        x, y = 10 + (_WIDTH - 20) * n / max(1, len(seconds) - 1), _y(s, most)
        dots.append(f"<circle cx={x:.1f} cy={y:.1f} r=2 fill='#8bc'><title>{1e6 * s:.4g} us</title></circle>")
        best = min(best, s)
        line.append(f"{x:.1f},{_y(best, most):.1f}")
    path = f"<polyline points='{' '.join(line)}' fill=none stroke='#c66'></polyline>"
    return f"<svg width={_WIDTH} height={_HEIGHT} style='border:1px solid #ccc'>{''.join(dots)}{path}</svg>"


def _y(seconds: float, most: float) -> float:
    return _HEIGHT - 10 - (_HEIGHT - 20) * seconds / most


def _winners(timed: Sequence[tuple[Row, float]]) -> str:
    """For each tuning parameter the values of the fast schedules beside those of all; one value: nothing to choose."""
    ordered = [r for r, _ in sorted(timed, key=lambda t: t[1])]
    fast = ordered[: max(1, round(_BEST * len(ordered)))]
    rows = []
    for name in sorted({n for r in ordered for n in r.values}):
        everywhere, here = ({str(r.values[name]) for r in some if name in r.values} for some in (ordered, fast))
        if len(everywhere) > 1:
            cells = "".join(f"<td>{escape(', '.join(sorted(values)))}</td>" for values in (here, everywhere))
            rows.append(f"<tr><td>{escape(name)}</td>{cells}</tr>")
    if not rows:
        return ""
    head = f"<tr><th>parameter</th><th>in the {len(fast)} fastest</th><th>in all {len(ordered)}</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"

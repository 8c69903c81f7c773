"""The plots of an evaluation: speed-up by length, and the share of the limit by length, a panel for each group.

matplotlib is an optional dependency (extra ``plots``) and is imported here only.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nautilus.bench.rows import Row
from nautilus.core.errors import ToolchainError
from nautilus.evaluation.report import groups, ratios, share

Lines = dict[str, list[tuple[int, float]]]
_COLUMNS = 4


def speedups(rows: Sequence[Row]) -> Lines:
    """The speed-up over each peer by length, a line for each peer and batch."""
    lines: Lines = {}
    for r in rows:
        for name, value in ratios(r).items():
            lines.setdefault(f"{name}, batch {r['batch']}", []).append((r["length"], value))
    return lines


def limits(rows: Sequence[Row]) -> Lines:
    """The share of the limit by length, a line for each batch."""
    lines: Lines = {}
    for r in rows:
        if (value := share(r)) is not None:
            lines.setdefault(f"batch {r['batch']}", []).append((r["length"], value))
    return lines


def plot(rows: Iterable[Row], folder: Path) -> list[Path]:
    """Write ``speedup.svg`` and ``limit.svg`` into ``folder``.  Raises ToolchainError where matplotlib is missing."""
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ToolchainError("plots", f"plots need matplotlib (pip install 'nautilusc[plots]'): {error}") from error
    found = groups(rows)
    kinds: Mapping[str, tuple[Callable[[Sequence[Row]], Lines], str]] = {
        "speedup": (speedups, "speed-up over the peer"),
        "limit": (limits, "share of the limit"),
    }
    made = []
    for name, (lines_of, what) in kinds.items():
        panels = {group: lines for group, mine in found.items() if (lines := lines_of(mine))}
        if panels:
            made.append(folder / f"{name}.svg")
            _figure(pyplot, panels, what, made[-1])
    return made


def _figure(pyplot: Any, panels: Mapping[str, Lines], what: str, file: Path) -> None:
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(4 * columns, 3 * rows), squeeze=False, layout="constrained")
    for unused in list(axes.flat)[len(panels) :]:
        unused.set_axis_off()
    for ax, (group, lines) in zip(axes.flat, panels.items(), strict=False):
        for label, points in sorted(lines.items()):
            ax.plot(*zip(*sorted(points), strict=True), marker="o", markersize=3, linewidth=1, label=label)
        lengths = sorted({n for points in lines.values() for n, _ in points})
        ax.set_xscale("log", base=2)
        ax.set_xticks(lengths, [f"{n // 1024}K" if n >= 1024 else str(n) for n in lengths])
        ax.axhline(1.0, color="black", linewidth=0.5)
        ax.set_title(group, fontsize=9)
        ax.set_ylabel(what, fontsize=8)
        ax.legend(fontsize=6)
    figure.savefig(file)
    pyplot.close(figure)

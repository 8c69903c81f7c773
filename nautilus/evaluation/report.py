"""The table of an evaluation as Markdown: means, every case, and what has no ratio and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean

from nautilus.bench.rows import Row
from nautilus.evaluation.cases import Case


def ratios(row: Row) -> dict[str, float]:
    """Our speed-up over each peer that has a ratio in ``row``."""
    return {n: p["ratio"] for n, p in row.get("peers", {}).items() if p["ratio"] is not None}


def best(row: Row) -> float | None:
    """Our speed-up over the fastest peer that has a ratio."""
    return min(ratios(row).values(), default=None)


def share(row: Row) -> float | None:
    """The share of the limit in our time: 1 is a kernel that takes as long as its operations or its bytes alone."""
    us: float | None = row.get("us")
    limit: float = row["limit_us"] if us else 0.0
    return limit / us if us else None


def groups(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows by group, each sorted by batch and length."""
    found: dict[str, list[Row]] = {}
    for r in sorted(rows, key=lambda r: (r["group"], r["batch"], r["length"])):
        found.setdefault(r["group"], []).append(r)
    return found


def markdown(rows: Mapping[str, Row], cases: Sequence[Case]) -> str:
    """The page.  ``cases``: all that were chosen; those without a row are counted."""
    mine = [rows[c.key] for c in cases if c.key in rows]
    names = sorted({n for r in mine for n in ratios(r)})
    about = sorted({f"{r['device']}, {r['arch']}, torch {r['torch']}" for r in mine if "device" in r})
    lines = ["# Evaluation", "", f"{'; '.join(about) or 'nothing measured'}. Cases: {len(mine)} of {len(cases)}.", ""]
    lines += ["A ratio above 1 means that ours is faster. Limit: operations at the rate of the matrix units, or bytes"]
    lines += ["at that of memory, whichever takes longer. Predicted: by the cost model.", "", "## Geometric means", ""]
    lines += _means(mine, names)
    for group, found in groups(mine).items():
        lines += ["", f"## {group}", "", *_table(found, names)]
    return "\n".join([*lines, *_reasons(mine)]) + "\n"


def _means(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Means of each group and of each element type of a suite."""
    lines = _head(["cases", "timed", "share of limit", *names, "best peer", "least"])
    families: dict[str, list[Row]] = {}
    for group, found in groups(rows).items():
        suite, _, kind = group.split("/")
        families.setdefault(f"**{suite}, {kind}**", []).extend(found)
        families[group] = found
    for name, found in sorted(families.items()):
        shares = [s for r in found if (s := share(r)) is not None]
        every = [[v for r in found if (v := ratios(r).get(n)) is not None] for n in names]
        tops = [b for r in found if (b := best(r)) is not None]
        values = [_mean(v) for v in [shares, *every, tops]]
        least = f"{min(tops):.2f}" if tops else ""
        lines.append(_line([name, str(len(shares)), *values, least]))
    return lines


def _mean(values: Sequence[float]) -> str:
    return f"{geometric_mean(values):.2f}" if values else ""


def _table(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    used = [n for n in names if any(n in ratios(r) for r in rows)]
    lines = _head(["batch", "length", "us", "TFLOP/s", "share of limit", "predicted us", *used, "error"])
    for r in rows:
        cells = [_cell(r.get("us"), ".1f"), _cell(r.get("tflops"), ".0f"), _cell(share(r), ".2f")]
        cells += [_cell(r.get("predicted_us"), ".1f"), *(_cell(ratios(r).get(n), ".2f") for n in used)]
        said = "failed" if "failure" in r else _cell(r.get("error"), ".1e") if r["ok"] else "WRONG"
        lines.append(_line([f"{r['batch']}", f"{r['length']}", *cells, said]))
    return lines


def _reasons(rows: Sequence[Row]) -> list[str]:
    """The cases without a ratio, by reason."""
    refused: dict[str, list[str]] = {}
    absent: dict[str, list[str]] = {}
    failures = [f"- {r['key']}: {r['failure']}" for r in rows if "failure" in r]
    failures += [f"- {r['key']}: wrong: {r['detail']}" for r in rows if r.get("ok") is False]
    for r in rows:
        for n, p in r.get("peers", {}).items():
            if p["refused"]:
                refused.setdefault(f"{n}: {p['refused']}", []).append(r["key"])
        for n, why in r.get("absent", {}).items():
            absent.setdefault(f"{n}: {why}", []).append(r["key"])
    lines = ["", "## Refused ratios", "", *(_listed(refused) or ["None."])]
    lines += ["", "## Peers without a call", "", *(_listed(absent) or ["None."])]
    return [*lines, "", "## Failures of ours", "", *(failures or ["None."])]


def _listed(found: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"- {why} ({len(keys)}: {', '.join(keys[:6])}{', …' if len(keys) > 6 else ''})"
            for why, keys in sorted(found.items())]  # fmt: skip


def _head(names: Sequence[str]) -> list[str]:
    return [_line(names), _line(["---"] * len(names))]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)

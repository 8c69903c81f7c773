"""What ``nautilusc explain`` says of the variants among which the launcher chooses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nautilus.core.schedule.dispatch import chosen
from nautilus.passes.compilation import Variants


def describe_variants(found: Variants | None) -> dict[str, Any] | None:
    """The dispatch and the predictions that it rests on as JSON data; None where one schedule serves all sizes."""
    if found is None:
        return None
    rows = []
    for p in found.points:
        n = chosen(found.dispatch, p.sizes)
        rows.append({
            "sizes": dict(p.sizes),
            "variant": found.sized[n].name,
            "microseconds": round(p.seconds[n] * 1e6, 3),
            "without_variants_microseconds": round(p.general * 1e6, 3),
        })  # fmt: skip
    return {"dispatch": found.text(), "predicted": rows}


def variant_lines(data: Mapping[str, Any] | None) -> list[str]:
    """The text of :func:`describe_variants`."""
    if data is None:
        return []
    lines = ["", "the launcher chooses:", *(f"  {line}" for line in data["dispatch"])]
    if data["predicted"]:
        lines.append("predicted with the chosen variant, and with the schedule above alone:")
    for row in data["predicted"]:
        sizes = ", ".join(f"{name} = {size}" for name, size in row["sizes"].items())
        times = f"{row['microseconds']:.4g} us ({row['variant']}), {row['without_variants_microseconds']:.4g} us"
        lines.append(f"  {sizes}: {times}")
    return lines

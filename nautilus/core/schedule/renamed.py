"""New names of the fields of version 1 of the format, for error messages about schedules of that version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: field of version 1 -> its replacement in version 2
_KERNEL: Mapping[str, str] = {
    "memory": "mapping",
    "walk_order": "iteration_order",
    "repair": "rescale_policy",
}
_MAPPING: Mapping[str, str] = {
    "early": "dependent_launch",
    "order": "raster_order",
    "group": "raster_group",
    "sections": "l2_supertiles",
    "fragments_ahead": "prefetch_fragments",
    "fragments_across": "double_buffer_fragments",
    "bulk_copies": "tma_loads",
    "join": "combine_in_block",
    "units": "warpgroups",
    "own_tiles": 'tile_scheduling ("pingpong" for true)',
    "specialise": "warp_specialised",
    "registers": "producer_registers and consumer_registers",
    "overlap": "pipeline_mma",
    "rescale": "rescale_placement",
    "hold": "register_operands",
    "in_flight": "outstanding_mma",
    "pin_waits": "volatile_waits",
    "ping_pong": "ordered_mma",
    "held_stages": "resident_stages",
}
_SPLIT: Mapping[str, str] = {"turns": "interleave"}
_EPILOGUES: Mapping[str, str] = {"bulk": "tma", "bulk-reuse": "tma-aliased", "bulk-ring": "tma-staged"}


def now_called(name: str) -> str | None:
    """The field that replaces ``name`` of version 1; None if version 1 had no such field."""
    return {**_KERNEL, **_MAPPING, **_SPLIT}.get(name)


def renames_in(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """``old is NEW`` for every field and value of ``raw``, a schedule of version 1, that has a new name."""
    return tuple(dict.fromkeys(_renames(raw)))


def _renames(raw: Mapping[str, Any]) -> Iterator[str]:
    for kernel in _objects(raw.get("kernels")):
        yield from _told(kernel, _KERNEL)
        for plan in _objects([kernel.get("memory")]):
            yield from _told(plan, _MAPPING)
            if (epilogue := str(plan.get("epilogue"))) in _EPILOGUES:
                yield f'epilogue "{epilogue}" is "{_EPILOGUES[epilogue]}"'
    for split in _objects(raw.get("splits")):
        yield from _told(split, _SPLIT)


def _objects(raw: Any) -> list[dict[str, Any]]:
    return [x for x in raw if isinstance(x, dict)] if isinstance(raw, list) else []


def _told(raw: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[str]:
    return (f"{old} is {new}" for old, new in names.items() if old in raw)

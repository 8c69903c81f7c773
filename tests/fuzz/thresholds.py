"""What the compiler does for large sizes only, at small ones: thresholds of passes and of the planner are lowered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from unittest.mock import patch


@dataclass(frozen=True)
class _Small:
    """A GPU that few blocks fill."""

    multiprocessors: int = 2


#: by module: names of constants and their values
LOWERED: Mapping[str, Mapping[str, object]] = {
    "nautilus.scalar.passes.operands.store_operands": {"AGAIN": 4, "TERMS": 64, "AGAIN_APART": 1, "TERMS_APART": 1},
    "nautilus.scalar.passes.axes.add_unit_axes": {"LONG": 4},
    "nautilus.targets.matrix_rates": {"LEAST": 1, "MATRICES_SHARE": 1e30},
    "nautilus.scalar.passes.axes.chunk_scans": {
        "TILE": 64, "SHORTEST": 16, "LONGEST": 32, "SHORT": 4, "COLUMN": 8, "COLUMN_TILE": 16, "COLUMN_ROW": 64,
        "COLUMNS": 4,
    },
    "nautilus.scalar.passes.axes.chunk_moments": {
        "TILE": 128, "BLOCK_REGISTERS": 64, "SHORTEST": 8, "RESIDENT": 1, "CACHED": 1,
    },
    "nautilus.planner.rowwise.scatters": {"MARGIN": 0},
    "nautilus.targets.part_rates": {"STORED_SHARE": 1e30},
    "nautilus.planner.rematerialise": {"LARGE": 1},
    "nautilus.planner.rowwise.shared_operands": {"LARGE": 1, "COSTLY": 1},
    "nautilus.scalar.passes.results.reduce_rows": {"LONG": 2, "MANY": 2},
    "nautilus.scalar.passes.results.tile_columns": {
        "WIDE": 16, "NARROW": 8, "DEEP": 8, "ROWS": 2, "COLUMNS": 16, "LARGE": 1, "THIN": 2,
    },
    "nautilus.scalar.passes.results.sink_gathers": {"TERMS": 16, "SIDE": 2},
    "nautilus.scalar.passes.results.sort_rows": {"LEAST": 1},
    "nautilus.scalar.passes.results.store_tables": {"SHARED": 2, "GAIN": 0},
    "nautilus.scalar.analysis.contractions.shared_parts": {"TERMS": 1, "OFTEN": 2, "AGAIN": 2},
    "nautilus.scalar.passes.windows.slide_windows": {"PART": 1},
    "nautilus.scalar.passes.windows.nest_windows": {"SHARE": 1e30},
    "nautilus.scalar.passes.windows.join_shifts": {"SHARE": 1e30, "LAUNCH": 0},
    "nautilus.scalar.passes.positions.expand_gathers": {"ROWS": 1},
    "nautilus.scalar.passes.positions.sort_terms": {
        "GAIN": 1e30, "CHUNKS": (4, 16), "MASKED_CHUNKS": (32, 64), "KERNELS": 0, "CODES": 0, "MOVED": 0,
    },
    "nautilus.scalar.passes.positions.invert_reads": {"RUN": 8},
    "nautilus.scalar.passes.results.order_temps": {"AGAIN": 1},
    "nautilus.scalar.passes.windows.order_operands": {"AGAIN": 2, "GAIN": 1e30, "WHOLE": 2},
    "nautilus.passes.selection.inline_choice": {"WINDOW_SLOTS": 8, "AGAIN_PAIRS": 2, "LAUNCH": 0},
    "nautilus.scalar.passes.windows.rescale_scans": {"CHUNK": 4, "SHORTEST": 5},
    "nautilus.scalar.passes.recurrences.chunk_matrix_states": {
        "LENGTHS": (2, 4), "GAIN": 1e30, "_LEAST_AXIS": 1,
    },
    "nautilus.scalar.passes.recurrences.chunk_recurrences": {"GAIN": 1e30},
    "nautilus.scalar.rewriting.states.pairs": {"BLOCK": 1},
    "nautilus.scalar.rewriting.states.fading_columns": {"BLOCK": 1},
    "nautilus.scalar.rewriting.states.chunks": {"TOGETHER": 5},
    "nautilus.scalar.passes.positions.find_ranges": {
        "BLOCK": 16, "LEAST": 2, "WORK": 1e-30, "TERMS": 0, "CERTAIN": 0.9,
    },
    "nautilus.scalar.passes.results.unroll_reductions": {"GAIN": 0, "SMALL": 0},
    "nautilus.scalar.passes.matrices.multiply_conditions": {"LEAST": 1, "SIDE": 2},
    "nautilus.scalar.passes.axes.scatter": {"RUN": 8, "MEET": 1, "FEWEST": 2, "MANY": 1, "EACH": 1},
    "nautilus.ma_tile.passes.grid.block_scatters": {"TERMS": 1, "BLOCKS": 1, "limits": lambda _: _Small()},
    "nautilus.ma_tile.passes.steps.stage_steps": {"LEAST": 16},
}  # fmt: skip

#: those with which short rows are loops and chunks, which makes programs of many small tiles
LOOPS: Mapping[str, Mapping[str, object]] = {
    "nautilus.planner.kernel": {"MAX_ROW": 64, "BLOCK": 64},
    "nautilus.planner.cuts": {"CHUNK": 64},
}  # fmt: skip


@contextmanager
def lowered(*, loops: bool = False) -> Iterator[None]:
    """Compile in the block as if small tensors were large; ``loops``: and rows of 64 elements were long."""
    with ExitStack() as stack:
        for name, constants in {**LOWERED, **(LOOPS if loops else {})}.items():
            module = import_module(name)
            for constant, value in constants.items():
                stack.enter_context(patch.object(module, constant, value))
        yield

"""The tile of a block in which the steps of a recurrence are a scan (``scan-tiles``).

*Along contiguous memory*, a tile has whole rows, or :data:`LONG` steps of one row.  *Across it*, neighbouring positions
along an independent axis are contiguous: a tile has several of these columns, as many as a line of memory has elements,
and as many steps as the registers of a block hold.  Where a tile has not all steps, a block has one tile after another,
and the states at the end of each one go into the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import Expr, Var, free_vars, loads
from nautilus.core.index.linear import linear
from nautilus.core.records import dataclass
from nautilus.core.tiles import ceil_pow2, floor_pow2
from nautilus.scalar.analysis.states.coupled_states import coupled_states, states_apart
from nautilus.scalar.analysis.states.recurrences import Form
from nautilus.scalar.ir import Loop, Program, Stmt, expressions, extent, statements
from nautilus.targets.limits import WORD
from nautilus.targets.memory_rates import LINE, SECTOR
from nautilus.targets.rates import machine
from nautilus.targets.records import DEFAULT_TARGET

ROW = 8192  # most elements of a row of which a block has the whole
HELD = 1 << 16  # elements of all tiles of a block: 128 registers of each of 512 threads
ALIGNED = 1024  # a longer row has a tile of a multiple of so many elements
LONG = 4096  # steps of a tile of a longer row
#: elements of a tile across memory, of which each thread reads 16: of the only block of a multiprocessor, with 512
#: threads, and of each one of several
ELEMENTS, SHARED_ELEMENTS = 8192, 4096
#: words of a step that are read at once: of four, H200, 1024 steps of 8192 columns take 42 us, tiles of half as many
#: elements 62 us
WORDS = 4
SHORTEST = 32  # steps of a tile across memory
BLOCKS = machine(DEFAULT_TARGET).multiprocessors  # blocks that run at the same time


@dataclass(frozen=True, slots=True)
class ScanTile:
    """``steps`` of a tile, ``count`` of which have all steps of a recurrence; ``across``: the axis with ``columns``."""

    steps: int
    count: int = 1
    across: Loop | None = None
    columns: int = 1


def scan_tile(program: Program, form: Form, steps: int | None = None) -> ScanTile | None:
    """The tile of a recurrence; None where neither its steps nor its positions are contiguous.

    ``steps``: those of a tile, in place of as many as the rule says (for tests).
    """
    whole, loop = extent(form.step) or 0, form.step
    if along_rows(form):
        fits = whole <= ROW and fits_tile(loop, loop.body)
        found = tile_of(whole) if fits else min(LONG, floor_pow2(max(1, HELD // _held(loop, loop.body))))
        found = found if steps is None else min(found, steps)
        return ScanTile(found, -(-whole // found))
    across = columns_axis(form)
    if across is None:
        return None
    read = {ld for _, s in statements(loop.body) for e in expressions(s) for ld in loads(e)}
    inputs = [ld for ld in read if ld.buffer not in form.roles and loop.var in free_vars(ld)]
    words = -(-sum(program.buffer(ld.buffer).dtype.bytes for ld in inputs) // WORD)
    coupled = coupled_states(form) if states_apart(form) is None else None
    states = 1 if coupled is None else len(coupled.rows) * (1 if coupled.steady else 2)
    columns, several = _columns(program, form, across, len(inputs) > 1)
    held = (SHARED_ELEMENTS if several else ELEMENTS) // ceil_pow2(max(1, words // WORDS, states // 2))
    most = max(SHORTEST, held // columns)
    found = min(most, ceil_pow2(whole)) if steps is None else min(steps, ceil_pow2(whole))
    return ScanTile(found, -(-whole // found), across, columns)


def tile_of(steps: int) -> int:
    """The elements of the tile of a whole row."""
    return ceil_pow2(steps) if steps <= ALIGNED else -(-steps // ALIGNED) * ALIGNED


def fits_tile(step: Loop, body: Sequence[Stmt], more: int = 0) -> bool:
    """Whether the registers of a block hold a row of each tensor that ``body``, in the loop ``step``, accesses.

    ``more``: rows besides.
    """
    return (extent(step) or 0) * (_held(step, body) + more) <= HELD


def _held(step: Loop, body: Sequence[Stmt]) -> int:
    """The tensors that ``body`` accesses at each step."""
    found = [s for _, s in statements(tuple(body))]
    read = {ld for s in found for e in expressions(s) for ld in loads(e) if step.var in free_vars(ld)}
    return len({ld.buffer for ld in read} | {s.buffer for s in found})


def along_rows(form: Form) -> bool:
    """Whether the elements of neighbouring steps are neighbours in every tensor that has steps."""
    return all(_is_row(index, form.step.var) for index, _ in _places(form))


def _places(form: Form) -> list[tuple[tuple[Expr, ...], str]]:
    """The positions with steps, and the tensors that are accessed there."""
    found = [s for _, s in statements(form.step.body)]
    places = [(s.index, s.buffer) for s in found]
    places += [(ld.index, ld.buffer) for s in found for e in expressions(s) for ld in loads(e)]
    return [(index, name) for index, name in places if any(form.step.var in free_vars(e) for e in index)]


def _is_row(index: tuple[Expr, ...], name: str) -> bool:
    *others, last = index
    return _moves_along(last, name) and not any(name in free_vars(e) for e in others)


def _moves_along(e: Expr, name: str) -> bool:
    """Whether ``e`` is ``name``, or its negative, and what does not depend on it."""
    found = linear(e)
    alone = all(atom == Var(name) or name not in free_vars(atom) for atom in found.terms)
    return alone and abs(found.slope(name)) == 1


def columns_axis(form: Form) -> Loop | None:
    """The independent axis whose neighbours are neighbours in every tensor that has steps and that axis."""
    for loop in form.shared:
        having = [index for index, _ in _places(form) if any(loop.var in free_vars(e) for e in index)]
        if having and all(_is_row(index, loop.var) for index in having) and extent(loop) is not None:
            return loop
    return None


def _columns(program: Program, form: Form, across: Loop, mixes: bool) -> tuple[int, bool]:
    """The columns of a block, and whether a multiprocessor has several blocks.

    They are those of a line of the widest type, or of fewer sectors where blocks are few.  Steps that ``mixes`` several
    tensors compute while another block waits for memory: there half a line is enough for two blocks (H200, 8 sequences
    of 2048 steps of 1024 columns: 70 us with 128 blocks, 53 with 256, 62 with 512; with one tensor 41 and 43 us).
    """
    names = {name for index, name in _places(form) if any(across.var in free_vars(e) for e in index)}
    held = {n for n in form.roles if program.buffer(n).space is Space.TEMP}
    width = max(program.buffer(n).dtype.bytes for n in names - held or names)
    count = extent(across) or 1
    others = prod(extent(x) or 1 for x in form.shared if x is not across)
    found = min(LINE // width, ceil_pow2(count))
    enough = BLOCKS - BLOCKS // 8

    def blocks(columns: int) -> int:
        return others * -(-count // columns)

    while found > SECTOR // width and blocks(found) < enough:
        found //= 2
    half = max(1, LINE // 2 // width)
    if mixes and found > half and blocks(found) < 2 * enough <= blocks(half):
        found = half
    return found, blocks(found) >= 2 * enough

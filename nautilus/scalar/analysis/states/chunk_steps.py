"""The factors of the chunks of a recurrence, and how many steps follow each other over the ends of chunks.

The states at the ends of chunks are a recurrence of as many steps as there are chunks.  Where these are many, it runs
in chunks itself, and so do the ends of those: a sequence of eight million steps in chunks of 64 has 131,072 ends, which
are 2048 chunks, of which the ends are 32 chunks.
"""

from __future__ import annotations

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Expr, Op
from nautilus.core.index.sizes import blocks
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.states.exponents import LEAST

AGAIN = 1024  # ends that run in chunks
LENGTH = 64  # steps of such a chunk
LAUNCHED = 45  # steps in the time of two more launches


@dataclass(frozen=True, slots=True)
class Times:
    """Predicted microseconds of the ``whole`` recurrence, of its ``memory`` alone, and ``cut`` into chunks.

    ``length``: the steps of a chunk; 0 where there are too few.
    """

    whole: float
    memory: float
    cut: float
    length: int


def steps_in_a_row(chunks: int) -> int:
    """The steps over the ends of ``chunks``, or those of a chunk of them, twice, and over the ends of these chunks."""
    return chunks if chunks < AGAIN else 2 * LENGTH + LAUNCHED + steps_in_a_row(blocks(chunks, LENGTH))


def kept(factor: Expr, before: Expr) -> Expr:
    """The product of ``factor`` and ``before``, which is not 0 unless one of them is."""
    dtype = factor.dtype
    zero, least = Const(0.0, dtype), Const(LEAST, dtype)
    product = Op("mul", (factor, before), dtype)
    if dtype.is_int or (isinstance(factor, Const) and abs(factor.value) == 1):
        return product
    small = calc("lt", Op("abs", (product,), dtype), least)
    both = calc("and", calc("ne", factor, zero), calc("ne", before, zero))
    negative = calc("ne", calc("lt", factor, zero), calc("lt", before, zero))
    nonzero = calc("select", negative, Const(-LEAST, dtype), least)
    return calc("select", calc("and", small, both), nonzero, product)

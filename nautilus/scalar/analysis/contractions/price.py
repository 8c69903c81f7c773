"""The predicted time of each sum of a contraction, from its operations and bytes, by which an order is chosen.

Only ratios matter: an order is taken where it is predicted to be clearly faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from nautilus.core.expr.nodes import Axis, Expr, Load, free_vars, loads
from nautilus.core.expr.products import strip_conversions
from nautilus.core.index.sizes import Extent, nominal
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.trees import Sum, matrix_sides, points
from nautilus.targets.rates import Machine

Shapes = Mapping[str, Sequence[Extent]]

_TENSOR = 0.7  # share of the peak that large products reach
_PARTS = 6.0  # instructions of a product of f32 matrices for one of 16 bits, at half the rate
_VECTOR = 0.25  # share of the peak of multiply-adds that loops over loads reach
_STORED = 4.0  # bytes that an element of a computed side is written and read with
_FEWEST = 16  # rows or columns that a matrix instruction computes at least


@dataclass(frozen=True, slots=True)
class Part:
    """A factor of a product: its axes, the bits of its elements, and the bytes that it reads; or a condition."""

    axes: frozenset[str]
    bits: int
    bytes: float
    condition: bool = False


@dataclass(frozen=True, slots=True)
class Price:
    """Seconds of a sum with elements of ``dtype``, where axes have ``extents`` and tensors ``volumes`` elements."""

    dtype: DType
    extents: Mapping[str, int]
    volumes: Mapping[str, float]
    rates: Machine

    @staticmethod
    def of(dtype: DType, axes: Iterable[Axis], shapes: Shapes, rates: Machine) -> Price:
        """The prices of sums over ``axes`` of what is read from tensors with ``shapes``."""
        volumes = {name: prod(map(float, map(nominal, shape))) for name, shape in shapes.items()}
        return Price(dtype, {a.name: nominal(a.extent) for a in axes}, volumes, rates)

    def part(self, e: Expr, unread: frozenset[str] = frozenset()) -> Part:
        """``e`` as a factor. Tensors that are ``unread`` are on chip when they are needed."""
        axes = free_vars(e) & self.extents.keys()
        read = [ld for ld in loads(e) if ld.buffer not in unread]
        total = sum(self.footprint(ld) * ld.dtype.bits / 8 for ld in read)
        whole = strip_conversions(e)
        return Part(frozenset(axes), whole.dtype.bits if isinstance(whole, Load) else self.dtype.bits, total)

    def footprint(self, ld: Load) -> float:
        """The number of distinct elements that ``ld`` reads, at most."""
        return min(points(free_vars(ld) & self.extents.keys(), self.extents), self.volumes[ld.buffer])

    def seconds(self, parts: Sequence[Part], over: frozenset[str], made: float) -> float:
        """The time of a sum ``over`` axes of the product of ``parts``; ``made``: bytes of a result that is stored."""
        m = self.rates
        axes = frozenset[str]().union(over, *(p.axes for p in parts))
        size = points(axes, self.extents)
        values = [p for p in parts if not p.condition]
        sides = matrix_sides([p.axes for p in values], over) if self.dtype is not DType.F64 else None
        moved = sum(p.bytes for p in values) + made
        per_second = m.multiprocessors * m.clock
        if sides is None:
            work = size * max(len(values), 1) / (m.fma * per_second * _VECTOR)
        else:
            for side, other in (sides, sides[::-1]):
                size *= max(1.0, _FEWEST / points(side.axes - other.axes, self.extents))
                moved += side.computed * _STORED * points(side.axes, self.extents)
            work = 2 * size / (m.tensor_half * per_second * _TENSOR)
            if min(p.bits for p in values) > 16:
                work *= _PARTS
        return max(work, moved / m.dram) + m.launch

    def sum(self, s: Sum, parts: Sequence[Part], at_top: bool) -> float:
        """The time of ``s``, whose operands are ``parts``; what it stores is read again."""
        bytes_ = self.dtype.bits / 8
        own = [parts[i] if isinstance(i, int)
               else Part(i.axes, self.dtype.bits, points(i.axes, self.extents) * bytes_) for i in s.items]  # fmt: skip
        return self.seconds(own, s.over, 0.0 if at_top else points(s.axes, self.extents) * bytes_)

"""The data types of remarks.

A remark says that an optimisation was missed, and why.  Its ``hint`` says what the user can write or run instead.  A
remark without a hint is *quiet*: it is in the JSON output, and on a terminal only with ``--verbose``.  Remarks state
facts about the compilation that was done; what is not certain is no remark.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from nautilus.core.errors import Diagnostic, Severity
from nautilus.core.records import dataclass
from nautilus.core.source import NO_SPAN, Span
from nautilus.cost.model import Estimate
from nautilus.frontend.spec import Spec
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.passes.compilation import Result
from nautilus.planner.products.dots import dot_of
from nautilus.scalar.analysis.definitions import Def, points
from nautilus.scalar.ir import Program


class Kind(enum.Enum):
    """The kind of a missed optimisation. The value is the name on the command line."""

    MATRIX_UNITS = "matrix-units"
    FUSION = "fusion"
    SCRATCH = "scratch"
    FALLBACK = "fallback"
    ORDER = "order"
    MASK = "mask"
    FLOOR = "floor"


NAMES = tuple(k.value for k in Kind)


@dataclass(frozen=True, slots=True)
class Remark:
    """One missed optimisation. ``hint`` None: nothing in the spec would change it."""

    kind: Kind
    message: str
    span: Span = NO_SPAN
    hint: str | None = None

    def diagnostic(self, severity: Severity = Severity.REMARK) -> Diagnostic:
        """The remark as a diagnostic, whose code is the name of its kind."""
        return Diagnostic(self.kind.value, self.message, self.span, (), self.hint, severity)


@dataclass(frozen=True, slots=True)
class Facts:
    """The source of all remarks: a finished compilation of a spec, with the programs that its passes saw.

    ``chosen``: the program after ``choose-terms``; ``ordered``: the one after ``order-contractions``; ``whole``: the
    one before reductions are cut into chunks; ``planned``: the one that ``fuse`` received, and ``defs`` its definitions
    by name.  ``estimate``: the prediction for the emitted kernels.
    """

    result: Result
    chosen: Program
    ordered: Program
    whole: Program
    planned: Program
    estimate: Estimate
    defs: Mapping[str, Def]

    @property
    def spec(self) -> Spec:
        """The Spec."""
        spec: Spec = self.result.modules["spec"]
        return spec

    @property
    def module(self) -> MemModule:
        """The module of the emitted kernels."""
        module: MemModule = self.result.modules["ma-tile"]
        return module

    def span(self, name: str) -> Span:
        """The place of definition ``name`` in the spec: its own, or that of the definition that it is a part of."""
        own = self.defs[name].span if name in self.defs else NO_SPAN
        if own.line > 0:
            return own
        found = [d for d in self.spec.definitions if name == d.name or name.startswith(f"{d.name}_")]
        return max(found, key=lambda d: len(d.name)).span if found else NO_SPAN

    def work(self, span: Span) -> int:
        """Terms of the largest product at ``span`` at the declared sizes; 0 where no product is there."""
        found = (d for d in self.defs.values() if d.span == span and dot_of(d) is not None)
        return max((points(d.axes) for d in found), default=0)

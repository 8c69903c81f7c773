"""Choices of errors, and the roundings of a program that they are errors of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from nautilus.check.bound.cancelling.ties import Ties, ties
from nautilus.check.bound.exactness import computed, narrow_only
from nautilus.check.bound.operands import in_lanes, without_matrices
from nautilus.check.bound.roundings.alike import repeated
from nautilus.check.bound.roundings.approximations import shown
from nautilus.check.bound.roundings.exponents import arguments
from nautilus.check.bound.sums.orders import cuts
from nautilus.core.expr.nodes import Expr
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, SplitPlan
from nautilus.frontend.spec import Spec

_ANY = Schedule()


@dataclass(frozen=True, slots=True)
class Probe:
    """One choice of errors.

    ``coherent``: all elements of a rounding have the same relative error, else independent ones.  ``opposed``: of
    coherent errors, those that do not cancel in a sum of sums, and those that a common term gives to all elements.
    ``size``: the largest relative error in units of roundoff.  ``regular``: sums of equal or ordered terms, whose
    errors do not average out.  ``reals``: only the errors of an interpreter over the reals, which computes in f64.
    ``tie``: a few of the numbers that steps decide about are just above a tie (1) or just below it (-1), or none is
    (0); None: what a few of the steps give is another value instead.
    """

    seed: int
    coherent: bool = False
    size: float = 1.0
    opposed: bool = False
    regular: bool = False
    reals: bool = False
    tie: int | None = None

    @property
    def tries_ties(self) -> bool:
        """Whether numbers at ties are among the choice."""
        return not (self.coherent or self.reals)


@dataclass(frozen=True)
class Roundings:
    """The roundings of a program besides those that it shows.

    ``parts``: f32 factors of products may be multiplied in parts (``core.functions.parts``).  ``terms``: the number of
    terms of a sum by (definition, axes) where it differs from that of the evaluated program.  ``hardware``: definitions
    in which functions may be approximated as for outputs of at most 16 bits.  ``computed``: definitions whose values
    are not exact.  ``shown``: inputs that stand for a more precise value, with their relative error.  ``cuts``: sums
    whose parts are found apart from each other.  ``ties``: steps that computed numbers decide about.  ``lanes``:
    definitions of which no matrix unit computes a sum.  ``in_lanes``: those whose sums lanes share.  ``resized``:
    numbers of which a product counts as exact, because it stands for a sum of more terms.  ``elements``: how many
    elements definitions have, of which some are evaluated.  ``repeated``: operations that several definitions have, and
    ``arguments`` those of exponentials.  ``exact``: definitions in which logarithms are those of the library.
    ``combined``: states of recurrences whose steps may be combined, with their relative errors.
    """

    fast: bool = True
    parts: bool = False
    terms: Mapping[tuple[str, tuple[str, ...]], int] = field(default_factory=dict)
    hardware: frozenset[str] = frozenset()
    computed: frozenset[str] = frozenset()
    shown: Mapping[str, float] = field(default_factory=dict)
    cuts: Mapping[str, SplitPlan] = field(default_factory=dict)
    ties: Ties = field(default_factory=Ties)
    lanes: frozenset[str] = frozenset()
    in_lanes: frozenset[str] = frozenset()
    resized: frozenset[float] = frozenset()
    elements: Mapping[str, int] = field(default_factory=dict)
    repeated: frozenset[Expr] = frozenset()
    arguments: frozenset[Expr] = frozenset()
    exact: frozenset[str] = frozenset()
    combined: Mapping[str, float] = field(default_factory=dict)


def roundings(
    spec: Spec, precision: str = "fast", terms: Mapping[tuple[str, tuple[str, ...]], int] | None = None,
    schedule: Schedule = _ANY,
) -> Roundings:  # fmt: skip
    """What follows from the structure of ``spec``, and from the ``schedule`` of its kernels."""
    fast, made = precision == "fast", computed(spec)
    return Roundings(
        fast, fast and schedule.decompose_operands, terms or {}, narrow_only(spec), made, cuts=cuts(spec, schedule),
        ties=ties(spec, made), lanes=without_matrices(spec), in_lanes=in_lanes(spec),
        repeated=repeated(spec), arguments=arguments(spec), exact=shown(spec),
    )  # fmt: skip

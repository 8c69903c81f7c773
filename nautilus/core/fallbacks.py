"""Conservative fallbacks: the ladder of plans that a kernel of the default rules goes down, one rung a failure.

A kernel that a later pass or ptxas refuses is planned again on the next rung:

* :data:`FEWER`: two consumer warpgroups instead of three, and no left operand in registers, which leaves more of them
  to elementwise work;
* :data:`LIGHTER`: warpgroup MMAs with smaller tiles;
* :data:`WITHOUT`: MMAs of single warps; a combining kernel without its cluster;
* :data:`SMALLER`: fewer stages and smaller tiles, until the need that the failure states is met (``excess``);
* :data:`EPILOGUES`: a product and its elementwise result stay together, apart from the other definitions, with the
  first choice of the rules for what remains;
* :data:`UNFUSED`: its definitions are kernels of their own, with intermediate results in global memory;
* :data:`PLAIN`: one thread for each element, serial loops, no shared memory.

The last rung is legal for every definition, so that every valid spec compiles.  A rung may change nothing for a kernel;
the driver then takes the next one without compiling again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from nautilus.core.errors import Obstacle
from nautilus.core.records import dataclass
from nautilus.core.source import NO_SPAN, Span

# a kernel at step 0 has the first choice of the rules
FEWER, LIGHTER, WITHOUT, SMALLER, EPILOGUES, UNFUSED, PLAIN = range(1, 8)

MOST = 256.0  # the factor beyond which no plan shrinks
ENOUGH = 4.0  # the factor beyond which no plan shrinks to spill less, since each attempt is compiled

#: The least factor by which a plan shrinks after each failure, so that few attempts reach the smallest tiles.
_LEAST = 1.25
_UNKNOWN = 2.0  # the factor after a failure that states no need


def sizing(step: int) -> int:
    """The rung whose rules size a kernel at ``step``: a product with its epilogue is smaller than what failed."""
    return 0 if step == EPILOGUES else step


@dataclass(frozen=True, slots=True)
class Failure:
    """A plan of ``kernel`` that was refused at step ``step`` of its fallbacks. ``span``: what was refused, if known."""

    kernel: str
    step: int
    reason: str
    span: Span = NO_SPAN
    obstacle: Obstacle | None = None


@dataclass(frozen=True, slots=True)
class Fallbacks:
    """Steps by kernel, sorted by name; a kernel at step 0 is not listed.

    ``excesses``: by kernel, how many times fewer resources than the rules' plan a plan should use; 1 is not listed.
    ``spilling``: the kernels whose spilled registers are accepted, because smaller plans spill too.  ``stored``: the
    definitions that a kernel of their readers does not compute.  ``failures``: the plans that were refused, in order;
    they decide nothing and are not compared.
    """

    taken: tuple[tuple[str, int], ...] = ()
    excesses: tuple[tuple[str, float], ...] = ()
    spilling: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    failures: tuple[Failure, ...] = field(default=(), compare=False)

    @classmethod
    def of(
        cls, steps: Mapping[str, int], excesses: Mapping[str, float] | None = None,
        spilling: frozenset[str] = frozenset(),
    ) -> Fallbacks:  # fmt: skip
        """``steps`` and ``excesses`` by kernel."""
        more = excesses or {}
        return cls(
            tuple(sorted((kernel, n) for kernel, n in steps.items() if n)),
            tuple(sorted((kernel, x) for kernel, x in more.items() if x > 1)),
            spilling,
        )

    def steps(self, kernel: str) -> int:
        """The step of ``kernel``."""
        return dict(self.taken).get(kernel, 0)

    def excess(self, kernel: str) -> float:
        """The factor by which ``kernel`` is smaller than the rules plan it."""
        return dict(self.excesses).get(kernel, 1.0)

    @property
    def last(self) -> frozenset[str]:
        """The kernels at the last step."""
        return frozenset(kernel for kernel, step in self.taken if step >= PLAIN)

    def exhausted(self, kernel: str) -> bool:
        """Whether ``kernel`` is at the last step."""
        return kernel in self.last

    def after(self, kernel: str, excess: float = 0.0, again: bool = False) -> Fallbacks:
        """The fallbacks after ``kernel`` failed.

        ``excess``: the ratio of the resource that it needs to what there is, 0 where the failure does not state it.  A
        kernel that already shrinks shrinks further where the ratio is known, by more if the last time changed nothing
        (``again``), until it is :data:`MOST` times smaller; so does one of a single definition that shrinks, where the
        ratio is not known, until it is :data:`ENOUGH` times smaller.  Every other one takes the next step.
        """
        step, known = self.steps(kernel), self.excess(kernel)
        if step in (SMALLER, UNFUSED) and excess > 1 and known < MOST:
            return self._with(kernel, step, known * max(excess, _UNKNOWN if again else _LEAST))
        if step == UNFUSED and 1 < known < ENOUGH and not again:
            return self._with(kernel, step, known * _UNKNOWN)
        return self._with(kernel, step + 1, (excess if excess > 1 else _UNKNOWN) if step + 1 == SMALLER else 1.0)

    def storing(self, names: frozenset[str]) -> Fallbacks:
        """These fallbacks with the definitions ``names`` stored."""
        return replace(self, stored=self.stored | names)

    def joined(self, other: Fallbacks) -> Fallbacks:
        """The later step of each kernel in these fallbacks and in ``other``."""
        names = {*dict(self.taken), *dict(other.taken)}
        shrunk = {*dict(self.excesses), *dict(other.excesses)}
        made = Fallbacks.of(
            {k: max(self.steps(k), other.steps(k)) for k in names},
            {k: max(self.excess(k), other.excess(k)) for k in shrunk},
            self.spilling | other.spilling,
        )
        return replace(made, stored=self.stored | other.stored, failures=self.failures)

    def noting(self, failure: Failure) -> Fallbacks:
        """These fallbacks, with ``failure`` as the last one."""
        return replace(self, failures=(*self.failures, failure))

    def after_spill(self, kernel: str, excess: float, again: bool = False) -> Fallbacks:
        """The fallbacks after ptxas spilled registers of ``kernel``: smaller plans, of which the last one may spill.

        ``excess``, ``again``: as for :meth:`after`.
        """
        smallest = self.excess(kernel) >= ENOUGH or (again and self.steps(kernel) == SMALLER)
        if self.steps(kernel) > SMALLER or smallest:
            return replace(self, spilling=self.spilling | {kernel})
        return self.after(kernel, excess, again)

    def _with(self, kernel: str, step: int, excess: float) -> Fallbacks:
        excesses = {**dict(self.excesses), kernel: excess}
        made = Fallbacks.of({**dict(self.taken), kernel: step}, excesses, self.spilling)
        return replace(made, stored=self.stored, failures=self.failures)


NO_FALLBACKS = Fallbacks()

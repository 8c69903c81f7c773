"""How far each kernel has stepped back from the warpgroup products that the default rules chose for it.

A kernel that fails with them, at a later level or in ptxas, is planned again: with lighter products first, then
with those of single warps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LIGHTER, WITHOUT = 1, 2  # steps; at 0, a kernel has what the rules like best


@dataclass(frozen=True, slots=True)
class Fallbacks:
    """Steps back by kernel, sorted by name; a kernel that took none is not listed."""

    taken: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, steps: Mapping[str, int]) -> Fallbacks:
        """``steps`` by kernel."""
        return cls(tuple(sorted((kernel, n) for kernel, n in steps.items() if n)))

    def steps(self, kernel: str) -> int:
        """How many ``kernel`` took."""
        return dict(self.taken).get(kernel, 0)

    def exhausted(self, kernel: str) -> bool:
        """Whether ``kernel`` has no products left to give up."""
        return self.steps(kernel) >= WITHOUT

    def after(self, kernel: str) -> Fallbacks:
        """These, and one more step of ``kernel``, which failed."""
        return Fallbacks.of({**dict(self.taken), kernel: self.steps(kernel) + 1})


NO_FALLBACKS = Fallbacks()

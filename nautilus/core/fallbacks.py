"""Conservative fallbacks: kernels that are planned with less demanding MMAs than the default rules choose.

A kernel whose warpgroup MMAs fail in a later pass or in ptxas is planned again, first with smaller tiles, then with
MMAs of single warps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LIGHTER, WITHOUT = 1, 2  # steps; a kernel at step 0 has the first choice of the rules


@dataclass(frozen=True, slots=True)
class Fallbacks:
    """Steps by kernel, sorted by name; a kernel at step 0 is not listed."""

    taken: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, steps: Mapping[str, int]) -> Fallbacks:
        """``steps`` by kernel."""
        return cls(tuple(sorted((kernel, n) for kernel, n in steps.items() if n)))

    def steps(self, kernel: str) -> int:
        """The step of ``kernel``."""
        return dict(self.taken).get(kernel, 0)

    def exhausted(self, kernel: str) -> bool:
        """Whether ``kernel`` is at the last step."""
        return self.steps(kernel) >= WITHOUT

    def after(self, kernel: str) -> Fallbacks:
        """The same with one more step for ``kernel``."""
        return Fallbacks.of({**dict(self.taken), kernel: self.steps(kernel) + 1})


NO_FALLBACKS = Fallbacks()

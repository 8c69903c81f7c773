"""The statement of the compiler about the error of an output, and the part of it that the statement is about."""

from __future__ import annotations

from math import inf, isfinite

from nautilus.core.numerics import Array
from nautilus.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Steps:
    """The first ``count`` of the ``total`` steps of a recurrence; ``axis`` of the output is that of the steps.

    ``reverse``: the first step has the last index.
    """

    axis: int
    count: int
    total: int
    reverse: bool = False

    def cut(self, x: Array) -> Array:
        """The elements of ``x``, an output, at these steps."""
        size = x.shape[self.axis]
        part = slice(max(0, size - self.count), None) if self.reverse else slice(0, self.count)
        return x[(slice(None),) * self.axis + (part,)]


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound of an output; ``relative`` is 0 for an exact output, and inf where none can be stated.

    ``ties``: the output has integers or bools that depend on computed floats.  ``one_off``: these are small integers
    that a float is rounded to at the end, so that a tie makes a difference of 1.  ``decided``: an output of floats
    depends on comparisons of computed floats, so that it has another value where these tie; the figure is that without
    ties.  ``form``: an approximation of the hardware in it differs from the function over the reals.  ``stepwise``: it
    holds for each step of a recurrence from the state that the result shows before it
    (:mod:`.recurrences.stepwise`).  ``steps``: it holds for these.  ``left_out``: it holds without this share of the
    largest errors and of the largest values; ``rare_inputs``: it does not hold on this share of the inputs
    (:mod:`nautilus.check.bound.cancelling`).  ``too_large``: none is stated, because a step of a recurrence takes too
    long to evaluate.
    """

    relative: float
    ties: bool = False
    form: bool = False
    one_off: bool = False
    stepwise: bool = False
    steps: Steps | None = None
    left_out: float = 0.0
    rare_inputs: float = 0.0
    too_large: bool = False
    decided: bool = False

    @property
    def step(self) -> float:
        """The largest difference that a tie makes in an integer."""
        return 1.0 if self.one_off else inf

    @property
    def by_element(self) -> bool:
        """Whether each element has an allowed error of its own, because a few large errors would hide all others."""
        return bool(self.left_out) or self.decided

    @property
    def grows(self) -> bool:
        """Whether errors of a recurrence grow until no bound of the whole output is useful."""
        return self.stepwise or self.steps is not None or not isfinite(self.relative)

    @property
    def cancels(self) -> bool:
        """Whether there is no bound because terms cancel in many elements."""
        return not isfinite(self.relative) and not self.too_large and bool(self.left_out or self.rare_inputs)

    def cut(self, x: Array) -> Array:
        """The elements of ``x``, the output or its reference, for which the bound holds."""
        return x if self.steps is None else self.steps.cut(x)

    @property
    def text(self) -> str:
        """The bound as text for messages and comments."""
        if self.relative == 0.0:
            off = "1 off" if self.one_off else "another one"
            return "exact" + (f", but {off} where computed numbers tie" if self.ties or self.decided else "")
        if self.too_large:
            return "not bounded, because a step of its recurrence is too large to be evaluated"
        if self.cancels:
            return "not bounded, because terms cancel in many elements"
        if not isfinite(self.relative):
            return "not bounded, because errors or values of its recurrence grow"
        said = f"{self.relative:.1e}"
        if self.stepwise:
            said += " in a step from the result of the step before, because errors grow over the steps"
        if self.steps is not None:
            said += f" in the first {self.steps.count} of {self.steps.total} steps; later ones are not bounded"
        if self.left_out:
            share = f"{100 * self.left_out:.2g}%"
            why = "terms cancel or computed numbers tie" if self.decided else "terms cancel"
            said += f" without the largest {share} of errors and of values, because {why} there"
        if self.rare_inputs:
            of = round(1 / self.rare_inputs)
            said += f" on {of - 1} of {of} inputs, and more where terms cancel"
        if self.decided and not self.left_out:
            said += ", but another value where computed numbers tie"
        return said

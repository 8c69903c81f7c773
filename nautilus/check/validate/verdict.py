"""The verdict of the validator on one rewrite."""

from __future__ import annotations

from typing import Literal, TypeAlias

from nautilus.core.records import dataclass

Status: TypeAlias = Literal["proved", "tested", "not decided", "refuted"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """``status`` and what it rests on.

    * proved: all elements have equal residues at random points, and agree at special points;
    * tested: the reals agree on ``points`` elements, but the residues do not decide; this counts as no proof;
    * not decided: the validator cannot evaluate a side; ``detail`` says why;
    * refuted: the sides differ, or the certificate does not belong to them; ``detail`` is the counterexample.
    """

    status: Status
    points: int = 0
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether no side is wrong: proved or tested."""
        return self.status in ("proved", "tested")

    @property
    def text(self) -> str:
        """The verdict in words."""
        return f"{self.label}: {self.detail}" if self.detail else self.label

    @property
    def label(self) -> str:
        """The status, with the number of points of a test."""
        return f"tested ({self.points} points)" if self.status == "tested" else self.status

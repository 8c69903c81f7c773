"""Ordered checks on printed IR, in the manner of FileCheck."""

from __future__ import annotations

from nautilus.core.passes import Pass
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.text import format_program, parse_program
from nautilus.scalar.verify import verify
from tests.scalar.programs.specs import agree


def expect(program: Program, text: str) -> None:
    """Assert that every line of ``text`` is part of a line of the printed program, in order; ``!line``: of none."""
    printed = format_program(program)
    lines, at = [line.strip() for line in printed.splitlines()], 0
    for want in (line.strip() for line in text.strip().splitlines()):
        if want.startswith("!"):
            assert want[1:] not in printed, f"{want[1:]!r} in\n{printed}"
            continue
        at = next((k + 1 for k in range(at, len(lines)) if want in lines[k]), -1)
        assert at > 0, f"no line {want!r} (in order) in\n{printed}"


def sound(program: Program) -> None:
    """Verified, and its text reads back equal."""
    verify(program)
    assert parse_program(format_program(program), program.name) == program


def lowered_by(made: Pass, text: str) -> Program:
    """The spec ``text`` after its lowering and the pass ``made``: sound, and equal to the spec on random inputs."""
    spec = load_text(text)
    p: Program = made.apply(lower(spec))
    sound(p)
    agree(spec, p)
    return p

"""Text for register numbers and tile positions: fragment layouts as C index arithmetic.

Everything here is a function of a register loop variable (compile-time once unrolled) and of
``lane`` and ``warp`` (one value a thread, computed once).
"""

from __future__ import annotations

from nautilus.ma_tile.ir.layout import FragLayout, Mode


def digit(var: str, div: int, size: int, last: bool) -> str:
    """Text of one mixed-radix digit of ``var``; ``last`` when no higher digit exists."""
    if size == 1:
        return "0"
    var = var if var == "$r" else group(var)
    text = var if div == 1 else f"{var} / {div}"
    if not last:
        return f"{text} % {size}" if div == 1 else f"({text}) % {size}"
    return text


def _terms(var: str, modes: tuple[Mode, ...], strides: list[int]) -> str:
    """Sum of digit * stride over ``modes`` (stride 0 contributes nothing)."""
    terms: list[str] = []
    div = 1
    for n, (mode, stride) in enumerate(zip(modes, strides, strict=True)):
        if stride and mode.size > 1:
            last = all(m.size == 1 for m in modes[n + 1 :])
            terms.append(times(digit(var, div, mode.size, last), stride))
        div *= mode.size
    return " + ".join(terms) if terms else "0"


def times(text: str, stride: int) -> str:
    """``text * stride``, in parentheses where ``text`` is no name."""
    return group(text) if stride == 1 else f"{group(text)} * {stride}"


def bare(text: str) -> str:
    """``text`` without parentheses around all of it."""
    depth = 0
    for n, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[1:-1] if n and n == len(text) - 1 else text
    return text


def group(text: str) -> str:
    """``text``, in parentheses unless it is a name, a number, or has parentheses around all of it."""
    return text if text.isidentifier() or text.isdigit() or bare(text) != text else f"({text})"


def register_offset(layout: FragLayout, axis: str, var: str) -> str:
    """Position along ``axis`` that register ``var`` adds to the thread's base."""
    return _terms(var, layout.reg, [m.stride if m.axis == axis else 0 for m in layout.reg])


def thread_parts(layout: FragLayout, axis: str) -> dict[str, str]:
    """``lane`` and ``warp``, where they matter -> what they add to the position along ``axis`` of register 0."""
    parts = {
        var: _terms(var, modes, [m.stride if m.axis == axis else 0 for m in modes])
        for var, modes in (("lane", layout.lane), ("warp", layout.warp))
    }
    return {var: text for var, text in parts.items() if text != "0"}


def thread_base(layout: FragLayout, axis: str) -> str:
    """Position along ``axis`` of the thread's register 0."""
    return " + ".join(thread_parts(layout, axis).values()) or "0"


def first_holder(layout: FragLayout, *, lanes: bool = True) -> dict[str, list[str]]:
    """``lane`` and ``warp``, where they matter -> conditions of the first thread that holds its elements.

    Without ``lanes``: of the first warp.
    """
    conditions: dict[str, list[str]] = {}
    for var, modes in (("lane", layout.lane if lanes else ()), ("warp", layout.warp)):
        div = 1
        for n, m in enumerate(modes):
            if m.axis is None and m.size > 1:
                last = all(x.size == 1 for x in modes[n + 1 :])
                conditions.setdefault(var, []).append(f"{digit(var, div, m.size, last)} == 0")
            div *= m.size
    return conditions


def projected_register(layout: FragLayout, axes: tuple[str, ...], var: str) -> str:
    """Register of ``layout.project(axes)`` that holds the element of register ``var`` of ``layout``."""
    keep = frozenset(axes)
    strides: list[int] = []
    stride = 1
    for m in layout.reg:
        strides.append(stride if m.axis in keep else 0)
        stride *= m.size if m.axis in keep else 1
    return _terms(var, layout.reg, strides)


def first_of_reduction(layout: FragLayout, axes: tuple[str, ...], var: str) -> str:
    """Condition that register ``var`` is the first one reduced into its result register."""
    reduced = frozenset(axes)
    total, div = 0, 1
    conditions: list[str] = []
    for n, m in enumerate(layout.reg):
        if m.axis in reduced and m.size > 1:
            last = all(x.size == 1 for x in layout.reg[n + 1 :])
            conditions.append(f"{digit(var, div, m.size, last)} == 0")
            total += 1
        div *= m.size
    return " && ".join(conditions) if conditions else "true"


def shuffle_distances(layout: FragLayout, axes: tuple[str, ...]) -> tuple[int, ...] | None:
    """Butterfly distances over the lanes that split ``axes``; None where a size is no power of two."""
    reduced, out, div = frozenset(axes), list[int](), 1
    for m in layout.lane:
        if m.axis in reduced:
            if m.size & (m.size - 1):
                return None
            out.extend(div << b for b in range(m.size.bit_length() - 1))
        div *= m.size
    return tuple(out)


def warp_digits(layout: FragLayout, axes: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """(divisor, size) of the warp-number digits that split ``axes``."""
    reduced, out, div = frozenset(axes), list[tuple[int, int]](), 1
    for m in layout.warp:
        if m.axis in reduced and m.size > 1:
            out.append((div, m.size))
        div *= m.size
    return tuple(out)

"""Makes a failing case smaller: a greedy search over candidates, each of which fails in the same way.

The method is the reduction of Zeller and Hildebrandt (Simplifying and Isolating Failure-Inducing Input, 2002), with
candidates that know the form of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tests.fuzz.case import Fuzzer, Verdict, judged

_ATTEMPTS = 400
_DIM = re.compile(r"\b([A-Z]\w*) = (\d+)")
_GUARD = re.compile(r" \| [^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*(?=\])")
_TYPE = re.compile(r": (f64|tf32|f16|bf16|f8e4m3|f8e5m2)\b")


def minimise(fuzzer: Fuzzer, text: str, seed: int, verdict: Verdict, attempts: int = _ATTEMPTS) -> str:
    """The smallest case found that has the status and the kind of ``verdict``."""

    def fails(candidate: str) -> bool:
        found = judged(fuzzer, candidate, seed)
        return (found.status, found.kind) == (verdict.status, verdict.kind)

    return reduce(text, fuzzer.smaller, fails, attempts)


def reduce(text: str, smaller: Callable[[str], Iterator[str]], fails: Callable[[str], bool], attempts: int) -> str:
    """``text`` after replacing it by its first failing candidate, again and again, with at most ``attempts`` trials."""
    seen, progress = {text}, True
    while progress and attempts > 0:
        progress = False
        for candidate in smaller(text):
            if candidate in seen:
                continue
            seen.add(candidate)
            attempts -= 1
            if fails(candidate):
                text, progress = candidate, True
                break
            if attempts <= 0:
                break
    return text


def smaller_lines(text: str) -> Iterator[str]:
    """``text`` without a run of its lines, longest runs first."""
    lines = text.splitlines(keepends=True)
    size = len(lines) // 2
    while size:
        for at in range(0, len(lines), size):
            yield "".join(lines[:at] + lines[at + size :])
        size //= 2


def smaller_spec(text: str) -> Iterator[str]:
    """Specs with fewer lines, simpler expressions, f32 for other types, or smaller sizes."""
    yield from smaller_lines(text)
    for m in _GUARD.finditer(text):
        yield text[: m.start()] + text[m.end() :]
    for start, end in _groups(text):
        inner = text[start + 1 : end]
        name = re.search(r"\w+(\[[^\[\]]*\])?$", text[:start])
        head = name.start() if name else start
        for part in _parts(inner):
            yield text[:head] + part + text[end + 1 :]
        yield text[:head] + "1" + text[end + 1 :]
    for m in re.finditer(r" (?:\+|-|\*|/|//) [^\s()]+", text):
        yield text[: m.start()] + text[m.end() :]
    for m in _TYPE.finditer(text):
        yield text[: m.start()] + ": f32" + text[m.end() :]
    for m in _DIM.finditer(text):
        for size in sorted({1, 2, int(m[2]) // 2} - {0, int(m[2])}):
            yield f"{text[: m.start(2)]}{size}{text[m.end(2) :]}" if size < int(m[2]) else text


def _groups(text: str) -> list[tuple[int, int]]:
    """Positions of matching round brackets, outermost and longest first."""
    stack: list[int] = []
    found = []
    for at, c in enumerate(text):
        if c == "(":
            stack.append(at)
        elif c == ")" and stack:
            found.append((stack.pop(), at))
    return sorted(found, key=lambda g: g[0] - g[1])


def _parts(inner: str) -> list[str]:
    """``inner`` and the parts between commas and around operators that stand in no bracket, each in brackets."""
    depth, start, cuts = 0, 0, []
    for at, c in enumerate(inner):
        depth += (c in "([") - (c in ")]")
        if not depth and c == ",":
            cuts.append(inner[start:at])
            start = at + 1
    parts = [*cuts, inner[start:]] if cuts else [inner]
    for operator in (" if ", " else ", " + ", " - ", " * ", " / "):
        if operator in inner and not cuts:
            parts += inner.split(operator, 1)
    return [
        f"({p.strip()})" for p in parts if p.strip() and p.count("(") == p.count(")") and p.count("[") == p.count("]")
    ]

"""Faults that make the text of a kernel hard to read, found in the text of a module."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from nautilus.cuda.text.statements import Spec, Statements

LONGEST = 140  # characters of a line
_TYPE = r"(?:float|double|int|bool|u\d+|i\d+|uint[24]|long long)"
_DECLARED = re.compile(rf"^\s*(?:const |static |constexpr )*{_TYPE}\s+(\w+)\b(?:\[[^\]]*\])*\s*[=;]", re.MULTILINE)
_ASSIGNED = re.compile(r"\s*(\w+)(?:\[.*?\])* [-+*/^|&]?= (.*)")
_INFINITE = re.compile(r"\s*(\w+)(?:\[\w+\])? = -?inf;")


def faults(text: str, spec: Spec | None = None) -> list[str]:
    """All faults of the kernels in ``text``, which is made from ``spec``."""
    lines = text.splitlines()
    found = [f"{len(line)} characters: {line.strip()}" for line in lines if len(line) > LONGEST]
    statements = Statements.of(spec)
    comments = {line.strip() for line in lines}
    found += [f"no comment: {c}" for d in statements.all if f"// {(c := statements.comment(d))}" not in comments]
    for kernel in text.split('extern "C" __global__')[1:]:
        code = [line.partition("//")[0] for line in kernel.splitlines()]
        found += [*_without_names(code), *_unread(code), *_on_infinities(code)]
    return found


def _without_names(code: list[str]) -> Iterator[str]:
    """Values that have a number for a name, and places in shared memory that are numbers."""
    for line in code:
        for m in _DECLARED.finditer(line):
            if re.fullmatch(r"v\d{2,}(_\d+)?", m[1]):  # v0 is a loop over v
                yield f"no name: {line.strip()}"
        if re.search(r"\b(?:smem|shared) \+ \d{2,}\b", line):
            yield f"a number for a place: {line.strip()}"


def _unread(code: list[str]) -> Iterator[str]:
    """Variables that are declared, and written at most."""
    text = "\n".join(code)
    words, written = Counter(re.findall(r"\b\w+\b", text)), Counter[str]()
    for line in code:
        m = _ASSIGNED.fullmatch(line)
        if m and not re.search(rf"\b{m[1]}\b", m[2]):
            written[m[1]] += 1
    yield from (f"not read: {n}" for n in sorted(set(_DECLARED.findall(text))) if words[n] - written[n] <= 1)


def _on_infinities(code: list[str]) -> Iterator[str]:
    """Arithmetic on the name of an infinity, and on arrays that nothing else is assigned to."""
    assigned = Counter(m[1] for line in code if (m := _ASSIGNED.fullmatch(line)))
    infinite = {m[1] for line in code if (m := _INFINITE.fullmatch(line)) and assigned[m[1]] == 1}
    passed = set(re.findall(r"&(\w+)", "\n".join(code)))
    names = "|".join(["inf", *sorted(infinite - passed)])
    value = rf"-?\b(?:{names})\b(?:\[[^\]]*\])?"
    call = r"\w*(?:max|min|fma|exp2|mul|div|add|abs|rcp|binade)\w*\("
    arithmetic = re.compile(rf"[-+*/] {value}|{value} [-+*/]|{call}(?:[^()]*, )?{value}[,)]")
    yield from (f"arithmetic on an infinity: {line.strip()}" for line in code if arithmetic.search(line))

"""One change of a program's text: an edit ``old => new``, as the directive ``EDIT`` of a file of IR text has it.

A number changes wherever it stands, so that a size stays that of buffers, loops and conditions; all else changes in one
line.  Many of the changed texts are no programs: a parser, a verifier or an interpreter refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise

#: what stands for what; a word or a sign between spaces
_OTHER = {
    "<": ("<=",), "<=": ("<",), ">": (">=",), ">=": (">",), "==": ("!=", "<="), "!=": ("==",), "and": ("or",),
    "+": ("-",), "-": ("+",), "*": ("+",), "/": ("*",), "//": ("%",), "%": ("//",),
    "sum=": ("max=",), "max=": ("sum=", "min="), "min=": ("max=",), "temp": ("output",),
    "mul": ("add",), "add": ("sub", "mul"), "sub": ("add",), "div": ("mul",), "max": ("min", "sum"), "min": ("max",),
    "sum": ("max",), "lt": ("le",), "le": ("lt",), "eq": ("le",), "ge": ("gt",), "gt": ("ge",),
}  # fmt: skip
_TYPES = {"f16": "f32", "f32": "f16", "bf16": "f16", "i8": "i32", "i32": "i64", "e4m3": "f16"}
_NUMBER = re.compile(r"(?<!\w)(?<!\w\.)\d+(?!\w)(?!\.\d)")
_INDEX = re.compile(r"(?<=[\[ ,(])[a-z]\w*(?=[\], ])")
_WORD = re.compile(r"(?<= )\S+(?= )|^temp(?= )")
_STORE, _UPDATE = re.compile(r"\w+\[.*\] = "), re.compile(r"\] \w+= ")
_MOST = 1 << 20  # a greater number may be one of the ends of integers


def edits(text: str) -> Iterator[str]:
    """All edits of the program ``text``."""
    for n in sorted({int(x) for x in _NUMBER.findall(text)}):
        yield from (f"{n} => {m}" for m in (n - 1, n + 1, 2 * n) if 0 < m < _MOST and m != n)
    for line in dict.fromkeys(x.strip() for x in text.splitlines()):
        yield from (f"{line} => {new}" for new in dict.fromkeys(_changed(line)) if new != line)


def applied(text: str, edit: str) -> str:
    """``text`` after an edit. Raises ValueError where what it changes is not in ``text``."""
    old, _, new = edit.partition(" => ")
    if old.isdigit():
        made = _NUMBER.sub(lambda m: new if m[0] == old else m[0], text)
    else:
        made = "".join(x.replace(old, new) if x.strip() == old else x for x in text.splitlines(keepends=True))
    if made == text:
        raise ValueError(f"the program does not hold {old!r}")
    return made


def _changed(line: str) -> Iterator[str]:
    """The statement or declaration ``line`` with one part changed."""
    for m in _WORD.finditer(line):
        yield from (line[: m.start()] + other + line[m.end() :] for other in _OTHER.get(m[0], ()))
    if line.startswith("input"):  # of other buffers, a result may differ by a rounding afterwards
        for m in re.finditer(r"(?<=: )\w+", line):
            yield line[: m.start()] + _TYPES.get(m[0], m[0]) + line[m.end() :]
    if not line.endswith("{") and not line.startswith(("input", "output", "temp")):
        yield from _in_statement(line)


def _in_statement(line: str) -> Iterator[str]:
    """``line`` with another number, with two variables exchanged, with a condition or without the one that it has.

    A store keeps its condition and its variables, because all elements that are read must be written once.
    """
    for m in _NUMBER.finditer(line):
        yield from (line[: m.start()] + str(int(m[0]) + by) + line[m.end() :] for by in (1, -1) if int(m[0]) + by >= 0)
    names = list(dict.fromkeys(_INDEX.findall(line)))
    for a, b in () if _STORE.match(line) else pairwise(names):
        yield _INDEX.sub(partial(_exchanged, {a: b, b: a}), line)
    head, where, _ = line.partition(" where ")
    if where:
        yield head
    elif _UPDATE.search(line):
        yield from (f"{line} where {x} >= 1" for x in names[:2])


def _exchanged(names: Mapping[str, str], found: re.Match[str]) -> str:
    return names.get(found[0], found[0])

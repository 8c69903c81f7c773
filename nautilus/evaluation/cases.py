"""The cases of the evaluation, from ``evaluation.json`` in the folder of the specs.

The file names, for each suite, members with a spec for each element type and the dims that the member fixes, and the
batches (dim ``B``) and lengths (dim ``N``, and ``M`` unless the member fixes the number of ``queries``) of the suite.
The suite of models and that of operators are those of the papers: the ten operators are of Neptune (arXiv 2510.08726).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from nautilus.core.errors import InputError
from nautilus.core.records import dataclass

FILE = "evaluation.json"


@dataclass(frozen=True)
class Case:
    """One point: ``spec`` is relative to the folder of the specs, ``length`` is the number of keys."""

    suite: str
    name: str
    kind: str
    batch: int
    length: int
    spec: str
    dims: Mapping[str, int]

    @property
    def key(self) -> str:
        """The name of the case in files and for ``--only``, such as ``models/vit-80/f16/b8/4096``."""
        return f"{self.group}/b{self.batch}/{self.length}"

    @property
    def group(self) -> str:
        """The cases that share a panel of plots and a mean: suite, name and element type."""
        return f"{self.suite}/{self.name}/{self.kind}"


def cases(specs: Path) -> Iterator[Case]:
    """All cases in the order of the file.  Raises InputError where the folder ``specs`` has no such file."""
    try:
        known = json.loads((specs / FILE).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {specs / FILE}: {error.strerror}") from error
    for suite, sizes in known["sizes"].items():
        for name, member in known[suite].items():
            fixed = member.get("dims", {})
            for kind, spec in member["specs"].items():
                for batch in sizes["batches"]:
                    for n in sizes["lengths"]:
                        dims = {**fixed, "B": batch, "M": member.get("queries", n), "N": n}
                        yield Case(suite, name, kind, batch, n, spec, dims)


def chosen(every: Iterable[Case], only: Sequence[str]) -> list[Case]:
    """The cases whose key matches one of the patterns ``only``, or all.

    Those of an earlier pattern come first, and those of one pattern in an order in which each part is a sample.  A
    pattern is one of the shell; it may leave out the end, so that ``models/vit-80`` names all cases of this model.
    """
    patterns = only or ["*"]
    keyed = [(next((n for n, p in enumerate(patterns) if _matches(c.key, p)), len(patterns)), c) for c in every]
    found = sorted(((n, zlib.crc32(c.key.encode()), c) for n, c in keyed if n < len(patterns)), key=lambda x: x[:2])
    return [c for _, _, c in found]


def _matches(key: str, pattern: str) -> bool:
    return fnmatchcase(key, pattern) or fnmatchcase(key, f"{pattern.rstrip('/')}/*")

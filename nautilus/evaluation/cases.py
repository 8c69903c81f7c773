"""The cases of the evaluation as data: a spec with sizes for each model, element type, batch and length.

Models: the attention of ViT with 16 heads of 64, 80, 88 and 128 columns over all keys, and the causal attention of
Llama-2-7B, Qwen2-7B, Qwen3-8B (queries and keys are normalised) and GLM-4-9B, each with 128 columns, at batch 1 and 8
and 1024 to 32768 positions, in f16 and in f8.

Operators: the ten of Neptune (arXiv 2510.08726): six over whole sequences and four that decode one position, in f16 at
256 to 32768 positions.  The heads are those of the specs.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from nautilus.core.records import dataclass

#: sizes of each model: the spec by element type, and the dims that the model fixes
_GLOBAL = {"f16": "attention/global_prefill", "f8": "models/global_f8"}
_CAUSAL = {"f16": "attention/gqa_prefill", "f8": "models/causal_f8"}
_NORMALISED = {"f16": "models/qk_norm", "f8": "models/qk_norm_f8"}
MODELS: Mapping[str, tuple[Mapping[str, str], Mapping[str, int]]] = {
    "vit-64": (_GLOBAL, {"H": 16, "D": 64}),
    "vit-80": (_GLOBAL, {"H": 16, "D": 80}),
    "vit-88": (_GLOBAL, {"H": 16, "D": 88}),
    "vit-128": (_GLOBAL, {"H": 16, "D": 128}),
    "llama2-7b": (_CAUSAL, {"Hq": 32, "Hkv": 32}),
    "qwen2-7b": (_CAUSAL, {"Hq": 28, "Hkv": 4}),
    "qwen3-8b": (_NORMALISED, {"Hq": 32, "Hkv": 8}),
    "glm4-9b": (_CAUSAL, {"Hq": 32, "Hkv": 2}),
}
BATCHES = (1, 8)
LENGTHS = tuple(1024 << n for n in range(6))

#: the batch of each operator
OPERATORS: Mapping[str, int] = {
    "global_prefill": 1, "causal_prefill": 1, "gqa_prefill": 1, "alibi_prefill": 1, "softcap_prefill": 1,
    "window_prefill": 1, "causal_decode": 8, "gqa_decode": 8, "alibi_decode": 8, "softcap_decode": 8,
}  # fmt: skip
OPERATOR_LENGTHS = tuple(256 << n for n in range(8))


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
        """The cases that share a row of plots and a mean: suite, name and element type."""
        return f"{self.suite}/{self.name}/{self.kind}"


def cases() -> Iterator[Case]:
    """All cases, models first."""
    for name, (specs, fixed) in MODELS.items():
        for kind, spec in specs.items():
            for batch in BATCHES:
                for n in LENGTHS:
                    yield Case("models", name, kind, batch, n, spec, {**fixed, "B": batch, "M": n, "N": n})
    for name, batch in OPERATORS.items():
        for n in OPERATOR_LENGTHS:
            dims = {"B": batch, "N": n} | ({"M": n} if name.endswith("prefill") else {})
            yield Case("operators", name, "f16", batch, n, f"attention/{name}", dims)


def chosen(every: Iterable[Case], only: Sequence[str]) -> list[Case]:
    """The cases whose key matches one of the patterns ``only``, or all; in an order in which each part is a sample.

    A pattern is one of the shell; it may leave out the end, so that ``models/vit-80`` names all cases of this model.
    """
    found = [c for c in every if not only or any(_matches(c.key, p) for p in only)]
    return sorted(found, key=lambda c: zlib.crc32(c.key.encode()))


def _matches(key: str, pattern: str) -> bool:
    return fnmatchcase(key, pattern) or fnmatchcase(key, f"{pattern.rstrip('/')}/*")

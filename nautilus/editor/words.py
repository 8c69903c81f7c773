"""What the words of the language mean, from its grammar and its reference page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from nautilus.frontend.syntax.grammar import grammar_file

_ROW = re.compile(r"^\| `(\w+)(\[[^`]*\])?(\([^`]*\))` \| (.*?) \| `([^`]*)` \| `([^`]*)` \|$", re.MULTILINE)
_TYPE = re.compile(r"^\| `(\w+)` \| (\d+) \| (\w+) \| `(\w+)` \|$", re.MULTILINE)
_SECTION = re.compile(r"^### `(\w+)`(?: and `(\w+)`)?: [^\n]*\n\n(.*?)\n\n", re.MULTILINE | re.DOTALL)
_KEYWORD = re.compile(r'^[A-Z]+: "([a-z]+)"$', re.MULTILINE)
_CONTEXTUAL = {
    "assume": "`assume` states a condition on sizes, scalars and inputs, which the compiler uses.",
    "recur": "`recur` defines tensors of which an element may read earlier elements, as in "
    "`recur h[t] = h[t - 1] * a[t] if t > 0 else 0`.",
    "strided": "`strided` after the shape of a tensor: the caller gives its strides at launch.",
    "runtime": "`dim N = runtime` is a size that is known only at launch.",
    "device": "`dim N = device <= 4096` is a size that kernels read in the memory of the device.",
}


@cache
def keywords() -> frozenset[str]:
    """The words that are no names anywhere."""
    return frozenset(_KEYWORD.findall(grammar_file("naut.lark").read_text(encoding="utf-8")))


#: words that begin a statement
STATEMENTS = ("dim", "const", "input", "output", "scalar", "def", "include", "assume", "recur")


@cache
def functions() -> Mapping[str, tuple[str, ...]]:
    """For each function, reduction and cast its forms: the form, what it means, and an example."""
    found: dict[str, tuple[str, ...]] = {}
    for name, binders, arguments, meaning, example, value in _ROW.findall(_page()):
        plain = re.sub(r"\\(.)", r"\1", meaning)
        form = f"`{name}{binders}{arguments}`: {plain}\n\n`{example}` is `{value}`."
        found[name] = (*found.get(name, ()), form) if len(found.get(name, ())) < 2 else found[name]
    return found


@cache
def meanings() -> Mapping[str, str]:
    """What a keyword or an element type means, in Markdown."""
    found = dict(_CONTEXTUAL)
    for first, second, text in _SECTION.findall(_page()):
        plain = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).split())
        found |= {word: plain for word in (first, second) if word and word not in found}
    for name, bits, kind, compute in _TYPE.findall(_page()):
        found[name] = f"`{name}`: {kind} of {bits} bits; arithmetic is done in `{compute}`."
    return found


@cache
def _page() -> str:
    return grammar_file("README.md").read_text(encoding="utf-8")

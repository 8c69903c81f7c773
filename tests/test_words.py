"""Words that are no term of the field stay out of the code, its texts and its tests; each has a replacement.

A word counts wherever it stands: in identifiers, docstrings, comments, messages, IR text.  ``_`` and digits
separate words, and so do capitals inside a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.shipped import ROOT


@dataclass(frozen=True)
class Word:
    """A word to avoid (a regular expression over words in lower case, separated by single spaces)."""

    pattern: str
    instead: str
    inside: str | tuple[str, ...] = ""  # the paths that the rule holds for; empty: everywhere


_MA_TILE = ("nautilus/ma_tile", "tests/ma_tile")

WORDS = (
    Word("roads?", "pipeline, or run"),
    Word("walk orders?", "iteration order"),
    Word("walk(s|ed|ing)", "reduction loop, traverse, visit"),
    Word("walks? (of|under|over|that)", "reduction loop, traverse"),
    Word("(groups of|fewer|more|two|each|blocks of|all) units", "consumer warpgroup, split-K warp"),
    Word("(mail|mailbox|mailboxes)", "tile-scheduler queue"),
    Word("own tiles", "pingpong or cooperative"),
    Word("(take|takes|taking|took) turns", "ping-pong, ordered barrier"),
    Word("in turn", "one after another, alternately"),
    Word("store turns", "double-buffered TMA store"),
    Word("meetings?", "producer-consumer kernel fusion"),
    Word("(lent|loans?|lends?|borrowed)", "stage aliasing"),
    Word("gauges?", "shift and scale invariance"),
    Word("knobs?", "tuning parameter"),
    Word("favou?rites?", "top candidate"),
    Word("hopeless", "pruned"),
    Word("plainer", "conservative fallback"),
    Word("homes", "layout candidates"),
    Word("votes?", "layout cost", "nautilus/ma_tile/lowering"),
    Word("troubles?", "failure reason"),
    Word("early launch(es)?", "programmatic dependent launch"),
    Word("(hold|held) operands?", "register-resident operand"),
    Word("held stages", "stages of operands that are loaded once"),
    Word("join (blocks|clusters)", "fuse split-K combine (block, cluster)"),
    Word("bulk (loads?|stores?)", "TMA load, TMA store"),
    Word("bulk rings?", "TMA loads"),
    Word("bulk cop(y|ies)", "TMA copy", ("nautilus/ma_tile/passes", "nautilus/planner", "nautilus/scalar")),
    Word("cluster loads", "multicast loads"),
    Word("(rings?|cursors?)", "pipeline, PipelineState", _MA_TILE),
    Word("stale references?", "lazy rescaling"),
    Word("fresh accumulators?", "zero accumulators"),
    Word("order products", "asynchronous MMA"),
    Word("(product stages|is product|(outstanding|warpgroup|pending|behind|has) products?)", "MMA"),
    Word("products?", "MMA, dot", ("nautilus/ma_tile/passes", "nautilus/ma_tile/analysis", "nautilus/ma_tile/verify")),
    Word("carry fragments", "double-buffered fragments"),
    Word("fragments? ahead", "prefetch of fragments"),
    Word("clean memory", "dead fragments"),
    Word("in flight", "outstanding asynchronous MMA", "nautilus/core/schedule"),
    Word("pin waits", "volatile wait"),
    Word("sections", "L2 swizzle", "nautilus/core/schedule"),
    Word("breed(s|ing)?", "mutate"),
    Word("(settle|settles|settled)", "finalise"),
    Word("doors?", "entry point"),
    Word("behind (the|its|every|an?|another) (last|first|next|end|sizes?|loops?|pass|steps?|barrier)", "after, beyond"),
)

#: what tells users the new names of old fields
HISTORY = {"nautilus/core/schedule/renamed.py", "tests/core/schedule/test_renamed.py"}

SUFFIXES = (
    ".py", ".naut", ".lark", ".md", ".ma", ".vr", ".scalar", ".sh", ".txt", ".toml", ".yaml", ".yml",
    ".json", ".js", ".h", ".cpp",
)  # fmt: skip
_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])")
_BETWEEN = str.maketrans(dict.fromkeys("\n\t_-.#;`*\"'", " "))
_COMPILED = [(w, re.compile(w.pattern.replace(" ", " +") + "(?![a-z])")) for w in WORDS]


def files() -> list[Path]:
    """Everything that people read, this file and :data:`HISTORY` excepted."""
    roots = [ROOT / n for n in ("nautilus", "grammar", "specs", "tests", ".github")]
    found = [p for r in roots for p in r.rglob("*") if p.suffix in SUFFIXES]
    hidden = {Path(__file__), *(ROOT / n for n in HISTORY)}
    pages = (ROOT / n for n in ("README.md", "Makefile", "pyproject.toml"))
    return sorted(p for p in [*found, *pages] if p not in hidden)


def found_in(path: str, text: str) -> Iterator[tuple[int, Word]]:
    """Lines of ``text`` with words to avoid. A term may be split between two lines."""
    lines = _BOUNDARY.sub(" ", text)
    whole = lines.translate(_BETWEEN).lower()
    for word, pattern in _COMPILED:
        if path.startswith(word.inside):
            for match in pattern.finditer(whole):
                if whole[match.start() - 1 : match.start()].isalpha():
                    continue  # a part of a longer word
                yield lines.count("\n", 0, match.start()) + 1, word


def occurrences() -> list[str]:
    """Every occurrence, as ``file:line: word; say: replacement``."""
    out = []
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        for line, word in found_in(name, path.read_text(encoding="utf-8")):
            out.append(f"{name}:{line}: {word.pattern!r}; say: {word.instead}")
    return out


def test_words_of_the_field() -> None:
    found = occurrences()
    assert not found, "words to avoid:\n" + "\n".join(found[:40])


@pytest.mark.parametrize(
    "text",
    ["the whole road", "walk_order = 1", "a walk's\n  walk\n# order", "class Mailbox:", "takeTurns", "KNOBS"],
)
def test_a_word_to_avoid_is_found(text: str) -> None:
    assert list(found_in("nautilus/core/x.py", text))


@pytest.mark.parametrize("text", ["abroad", "the order of a walk", "a string", "a_meetingroom", "unsettled"])
def test_other_words_are_not(text: str) -> None:
    assert not list(found_in("nautilus/core/x.py", text))


def test_a_rule_for_one_room_holds_there_only() -> None:
    assert list(found_in("nautilus/ma_tile/x.py", "the ring"))
    assert not list(found_in("nautilus/core/x.py", "the ring"))

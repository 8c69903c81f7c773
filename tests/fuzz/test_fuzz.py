"""A few cases of every fuzzer, every case that failed in the past, and the campaign itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from nautilus.core.types import DType
from nautilus.frontend.semantics.symbols import BUILTINS
from nautilus.targets.records import TARGETS
from tests.cases import some
from tests.fuzz.campaign import FUZZERS, Campaign
from tests.fuzz.case import OK, Fuzzer, Verdict, judged
from tests.fuzz.fuzzers.levels import attempt, attempt_with_specials
from tests.fuzz.minimise import minimise, reduce, smaller_lines, smaller_spec
from tests.fuzz.specs import GENERATORS

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.naut"))
SPECIALS = sorted((Path(__file__).parent / "corpus/specials").iterdir())  # wrong with inf or NaN in the inputs
#: of which each family of structures, and each form, has one
EACH = (0, 1, 2, 5, 7, 9)
SEEDS: dict[str, Sequence[int]] = {
    "language": range(some(20, 40)),
    "command-line": range(some(15, 30)),
    "ir": range(some(8, 12)),
    "rules": range(4),
    "large-rules": range(some(2, 4)),
    "full-sizes": (2,),  # reductions of few blocks: others compile for longer
    "printed": (1, 2),  # chains and products; those of the language have no tiles in shared memory
    "rearrangements": range(4),
    "large-rearrangements": range(some(2, 4)),
    "specials": range(7),  # one of each generator
    **dict.fromkeys(("structures", "forms"), EACH),
    **dict.fromkeys(("large-structures", "large-forms"), EACH[:: some(2, 1)]),
}
OTHERS: Sequence[int] = range(some(4, 6))  # seeds of each other fuzzer


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.gpu] * (n == "device")) for n in sorted(FUZZERS)])
def test_some_cases(name: str) -> None:
    fuzzer = FUZZERS[name]
    for seed in SEEDS.get(name, OTHERS):
        text = fuzzer.make(seed)
        verdict = judged(fuzzer, text, seed)
        assert verdict.status in ("ok", "refused"), f"{seed}: {verdict}\n{text[:2000]}"


@pytest.mark.parametrize("path", CORPUS, ids=lambda p: p.stem)
@pytest.mark.parametrize("number", range(2))
def test_corpus(path: Path, number: int) -> None:
    """The seeds of a case go over kinds of inputs, and those of neighbouring cases over all targets."""
    verdict = attempt(path.read_text(), (number + CORPUS.index(path)) * (len(TARGETS) + 1))
    assert verdict.status == "ok", verdict.message


@pytest.mark.parametrize("path", SPECIALS, ids=lambda p: p.stem)
def test_corpus_of_specials(path: Path) -> None:
    for seed in range(4):
        verdict = attempt_with_specials(path.read_text(), seed * (len(TARGETS) + 1))
        assert verdict.status == "ok", verdict.message


def test_a_seed_gives_one_case() -> None:
    for fuzzer in FUZZERS.values():
        assert fuzzer.make(3) == fuzzer.make(3)


def test_the_generators_reach_every_construct() -> None:
    text = "\n".join(make(seed) for make in GENERATORS.values() for seed in range(200))
    words = {*re.findall(r"[A-Za-z_]\w*", text)}
    prelude = (Path(__file__).parents[2] / "grammar/prelude.naut").read_text()
    functions = {*BUILTINS, *re.findall(r"^def (\w+)", prelude, re.MULTILINE)}
    assert functions <= words and {t.value for t in DType} <= words
    assert {"recur", "assume", "strided", "runtime", "scalar", "def", "dim", "and", "or", "not", "if"} <= words
    for sign in ("..", "&", " | ", "^", "~", "<<", ">>", "//", "%", "**", "strided(all)", "!=", "-inf", "-1e30"):
        assert sign in text, sign


def _finds(word: str) -> Fuzzer:
    def wrong(text: str, _seed: int) -> Verdict:
        return Verdict("wrong", word) if word in text else OK

    return Fuzzer("words", lambda seed: f"a\nb{seed}\n{word}\nc\n" if seed == 7 else "a\n", wrong, smaller_lines)


def test_minimise_keeps_the_failure() -> None:
    fuzzer = _finds("here")
    assert minimise(fuzzer, fuzzer.make(7), 7, Verdict("wrong", "here")) == "here\n"


def test_a_spec_becomes_small() -> None:
    text = "dim A = 64\ninput X: f16[A]\noutput Y: f32[A]\nY[a: A] = exp(sum[b: A | b <= a](X[b] * 2)) + 1\n"
    small = reduce(text, smaller_spec, lambda t: "exp(" in t and "Y[a: A]" in t, 300)
    assert "exp(" in small and len(small) < 40 < len(text)


def test_an_exception_is_internal_and_names_its_place() -> None:
    def broken(_text: str, _seed: int) -> Verdict:
        raise KeyError("x")

    verdict = judged(Fuzzer("broken", lambda _: "", broken, smaller_lines), "", 0)
    assert verdict.status == "internal" and verdict.kind.startswith("KeyError")


def test_a_long_case_is_slow() -> None:
    def endless(_text: str, _seed: int) -> Verdict:
        while True:
            pass

    assert judged(Fuzzer("endless", lambda _: "", endless, smaller_lines, seconds=1), "", 0).status == "slow"


def test_a_campaign_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = Campaign(tmp_path, ("array",), 40)
    (tmp_path / "progress.jsonl").write_text('{"fuzzer": "array", "first": 0, "verdicts": {"ok": 20}}\n{"fuzz')
    assert campaign.progress() == ({("array", 0)}, {"array": {"ok": 20}})
    *_, (tried, total, verdicts) = campaign.run()
    assert tried == total == 40 and verdicts == {"array": {"ok": 40}}
    assert not list((tmp_path / "found").iterdir())

"""Conditions on memory whose blocks are found first, at small sizes and at every level."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.check.inputs import generate
from nautilus.check.levels import run
from nautilus.driver import Request, compile_file
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.positions import find_ranges
from tests.endtoend.support import disagreements, travel

HEAD = (
    "dim B = 2, H = 2, M = 200, D = 32\nconst N = {n}\ninput Q: f16[B, H, M, D]\ninput K: f16[B, H, N, D]\n"
    "input V: f16[B, H, N, D]\n{inputs}\noutput O: f16[B, H, M, D]\n"
    "S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / 6\n"
    "P[b, h, i, j] = softmax[j | {condition}](S[b, h, i, j])\n"
    "O[b, h, i, d] = sum[j](P[b, h, i, j] * V[b, h, j, d])\n"
)
CONDITIONS = {
    "documents of any ids": ("M", "input doc: i32[B, M]", "doc[b, i] == doc[b, j]"),
    "intervals": ("M", "input range: i32[M, 2]", "range[i, 0] <= j and j < range[i, 1]"),
    "starts by sequence": ("M", "input cu: i32[9]\ninput sid: u8[M]\nassume sid[i] < 9", "cu[sid[i]] <= j and j <= i"),
    "prefixes": (
        "M",
        "input prefix: i32[4]\ninput doc: u8[M]\nassume 0 <= doc[i] < 4",
        "doc[i] == doc[j] and (j <= i or j < prefix[doc[i]])",
    ),
    "distances": ("256", "input at: i32[N]\ninput here: i32[M]", "abs(here[i] - at[j]) <= 2 and not (at[j] == 3)"),
    "blocks": ("256", "input layout: u8[4, 4]", "layout[i // 64, j // 64] != 0"),
    "heads": ("M", "input window: i32[H]\ninput doc: u8[M]", "i - j < window[h] and doc[i] == doc[j]"),
    "floats": ("256", "input time: f32[N]\ninput now: f32[M]", "time[j] <= now[i]"),
    "documents": ("M", "input doc: u8[B, M]", "j <= i and doc[b, i] == doc[b, j]"),
    "starts of rows": ("M", "input at: i32[M]", "at[i] <= j and j <= i"),
    "padding": ("256", "input keep: bool[B, N]", "keep[b, j]"),
    "any mask": ("333", "input keep: bool[M, N]", "keep[i, j]"),
    "a number for each block of rows": (
        "256",
        "input first: i32[4]\ninput time: i32[N]",
        "(time[j] if j < 250 else first[i // 64]) % 5 == 2",
    ),
    "scattered keys": ("256", "input time: i16[N]\ninput now: i16[B, M]", "time[j] <= now[b, i]"),
}


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass applies whatever the sizes are."""
    monkeypatch.setattr(find_ranges, "_pays", lambda members, place, terms: True)
    monkeypatch.setattr(find_ranges, "WORK", 2.0**-60)


def complaints(text: str, arch: str, **sizes: int) -> list[str]:
    """What each level computes otherwise than the Spec."""
    made = travel(text, arch)
    given = generate(made.result.modules["spec"], "random", sizes=sizes)
    stages = ("scalar", "vr-tile", "ma-tile")
    return disagreements(made, given, ((stage, run(made.last(stage), given, "typed")) for stage in stages))


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(
    ("name", "arch"), [*((name, "sm_90a") for name in CONDITIONS), ("documents", "sm_80")], ids=lambda x: x
)  # fmt: skip
def test_results_are_those_of_all_blocks(name: str, arch: str) -> None:
    n, inputs, condition = CONDITIONS[name]
    assert not complaints(HEAD.format(n=n, inputs=inputs, condition=condition), arch)


RUNTIME = (
    "dim M = runtime{bound}, N = runtime{bound}, H = 2, D = 32\ninput Q: f16[M, H, D]\ninput K: f16[N, H, D]\n"
    "input V: f16[N, H, D]\n{inputs}\noutput O: f16[M, H, D]\n"
    "S[h, i, j] = sum[d](Q[i, h, d] * K[j, h, d]) / 6\n"
    "O[i, h, d] = sum[j](softmax[j | {condition}](S[h, i, j]) * V[j, h, d])\n"
)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(
    ("bound", "inputs", "condition"),
    [
        ("", "input mine: i32[M]\ninput doc: i32[N]", "mine[i] == doc[j]"),
        (" <= 5000", "input range: i32[M, 2]", "range[i, 0] <= j and j < range[i, 1]"),
    ],
)
def test_results_at_sizes_known_at_launch(bound: str, inputs: str, condition: str) -> None:
    assert not complaints(RUNTIME.format(bound=bound, inputs=inputs, condition=condition), "sm_90a", M=130, N=77)


@pytest.mark.usefixtures("everywhere")
def test_loops_begin_and_end_at_the_range() -> None:
    n, inputs, condition = CONDITIONS["documents"]
    text = HEAD.format(n=n, inputs=inputs, condition=condition)
    result = compile_file(Request(Path("given.naut"), "sm_90a", text=text))
    assert "P_max_first_end" in result.cuda_module.code and "P_max_last_end" in result.cuda_module.code


def test_ends_that_are_the_same_for_a_block_need_no_range() -> None:
    text = HEAD.format(n="200", inputs="input len: i32[B]", condition="j < len[b]")
    program = compile_file(Request(Path("given.naut"), "sm_90a", until="scalar", text=text)).modules["scalar"]
    assert not [b.name for b in program.buffers if b.name.endswith("_first")]


TREE = """
dim B = 8, H = 32, M = 512, L = 4096, D = 128
const N = L + M
input Q: f16[B, H, M, D]
input K: f16[B, H, N, D]
input V: f16[B, H, N, D]
input tree: bool[M, N]
output O: f16[B, H, M, D]
S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d])
O[b, h, i, d] = sum[j](softmax[j | j < L or tree[i, j]](S[b, h, i, j]) * V[b, h, j, d])
"""


@pytest.mark.parametrize(("before", "found"), [("j < L or ", False), ("", True)])
def test_a_condition_that_admits_most_elements_anyway_needs_no_range(before: str, found: bool) -> None:
    text = TREE.replace("j < L or ", before)
    program = compile_file(Request(Path("given.naut"), "sm_90a", until="scalar", text=text)).modules["scalar"]
    assert any(b.name.endswith("_first") for b in program.buffers) is found


@pytest.mark.parametrize(("first", "leaves"), [("j", True), ("j + 3", True), ("j // 4096", False), ("Q[i, j]", False)])
def test_a_condition_that_leaves_out_one_element_needs_no_range(first: str, leaves: bool) -> None:
    text = (
        "dim M = 4, N = 8192\ninput Q: i32[M, N]\ninput best: i32[M]\noutput O: i32[M]\n"
        f"O[i] = max[j | {first} != best[i]](Q[i, j])\n"
    )
    (d,) = read_defs(lower(load_text(text))).values()
    assert d.guard is not None and find_ranges._leaves_out_one(d.guard, d.red[0].name) is leaves

"""Planted faults of the sm_90a class: each must be caught, and the error must name the operation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.ir.async_ops import MatrixStore, TmaLoad, TmaStore
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import MemModule, MmaOp
from nautilus.ma_tile.text import parse
from tests.ma_tile import faults as f
from tests.ma_tile.faults import assert_found
from tests.ma_tile.interp.test_warpgroup import CASES
from tests.ma_tile.programs import plain as p

SEEDS = range(3)


def edited(name: str, *changes: tuple[str, str]) -> tuple[str, dict[str, np.ndarray], np.ndarray]:
    """A program with the first occurrence of each text replaced; its inputs; the result without the change."""
    text, inputs, want = CASES[name]()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text, inputs, want


def fails(name: str, *changes: tuple[str, str], seed: int = 0) -> InterpError:
    text, inputs, _ = edited(name, *changes)
    with pytest.raises(InterpError) as info:
        run_module(parse(text), inputs, seed=seed)
    return info.value


WAIT = "wg.wait 0 %next\n          mbar.arrive empty[r_stage] each warp"
EARLY = "mbar.arrive empty[r_stage] each warp\n          wg.wait 0 %next"
RELEASE = "if t >= 1 { mbar.arrive empty[(r_stage + 2) % 3] each warp }"
NOW = "mbar.arrive empty[r_stage] each warp"
#: what: (program, changes, kinds, part of the operation's text)
FAULTS: dict[str, tuple[str, tuple[tuple[str, str], ...], tuple[str, ...], tuple[str, ...]]] = {
    "missed arrival": (
        "product",
        ((NOW, ""),),
        ("deadlock",),
        ("producer at `mbar.wait empty[r_stage]",),
    ),
    "missed arrival of one consumer": (
        "product",
        ((NOW, f"if consumer == 0 {{ {NOW} }}"),),
        ("deadlock",),
        ("producer at `mbar.wait empty[r_stage]",),
    ),
    "doubled arrival": (
        "product",
        ((NOW, f"{NOW} {NOW}"),),
        ("over-arrival", "overwrite-in-use", "pending-copy"),
        ("mbar.arrive", "tma.load", "mma"),
    ),
    "every thread arrives": (
        "product",
        ((" each warp", ""),),
        ("over-arrival",),
        ("mbar.arrive empty[r_stage]",),
    ),
    "too many bytes announced": (
        "product",
        (("full[r_stage] 24576", "full[r_stage] 24592"),),
        ("deadlock",),
        ("mbar.wait full[r_stage]",),
    ),
    "too few bytes announced": (
        "product",
        (("full[r_stage] 24576", "full[r_stage] 16384"),),
        ("pending-copy", "unsynchronised-read", "deadlock", "over-arrival"),
        ("mma wgmma.f16", "mbar.wait", "tma.load"),
    ),
    "no bytes announced": (
        "product",
        (("mbar.expect full[r_stage] 24576", "mbar.arrive full[r_stage]"),),
        ("pending-copy", "unsynchronised-read", "uninitialised", "over-arrival"),
        ("mma wgmma.f16", "mbar.", "tma.load"),
    ),
    "a load less": (
        "product",
        (("tma.load sb[r_stage] swizzle 128, B[n, t * 64 + k] mbar full[r_stage]", ""),),
        ("deadlock",),
        ("mbar.wait full[r_stage] parity r_phase",),
    ),
    "producer's parity": (
        "product",
        (("parity 1 - r_phase", "parity r_phase"),),
        ("deadlock",),
        ("mbar.wait empty[r_stage] parity r_phase",),
    ),
    "consumer's parity": (
        "product",
        (("full[r_stage] parity r_phase", "full[r_stage] parity 1 - r_phase"),),
        ("pending-copy", "uninitialised", "unsynchronised-read", "deadlock"),
        ("mma wgmma.f16", "mbar.wait full"),
    ),
    "no wait for the stage": (
        "product",
        (("mbar.wait full[r_stage] parity r_phase", ""),),
        ("pending-copy", "uninitialised", "unsynchronised-read", "over-arrival"),
        ("mma wgmma.f16", "tma.load"),
    ),
    "no wait for an empty stage": (
        "product",
        (("mbar.wait empty[r_stage] parity 1 - r_phase", ""),),
        ("unordered-writes", "overwrite-in-use", "over-arrival"),
        ("tma.load", "mbar.expect"),
    ),
    "wrong stage of the MMA": (
        "product",
        (("smem sb[r_stage]", "smem sb[(r_stage + 1) % 3]"),),
        ("pending-copy", "uninitialised", "unsynchronised-read"),
        ("mma wgmma.f16",),
    ),
    "wrong stage of the barrier": (
        "product",
        (("mbar.wait full[r_stage]", "mbar.wait full[0]"),),
        ("pending-copy", "uninitialised", "unsynchronised-read", "deadlock", "over-arrival"),
        ("mma", "mbar", "bulk"),
    ),
    "wrong stage of the release": (
        "product",
        ((NOW, "mbar.arrive empty[0] each warp"),),
        ("over-arrival", "deadlock", "overwrite-in-use"),
        ("mbar", "tma.load"),
    ),
    "pipeline that stands still": (
        "product",
        (("advance r\n", "\n"),),
        ("over-arrival", "deadlock", "unordered-writes", "overwrite-in-use"),
        ("mbar", "tma.load"),
    ),
    "pipeline with one stage too many": (
        "product",
        (("pipeline r stages 3", "pipeline r stages 4"),),
        ("out-of-bounds",),
        ("[r_stage",),
    ),
    "early release": ("product", ((WAIT, EARLY),), ("overwrite-in-use",), ("tma.load s",)),
    "early release of the stage that is read": (
        "after",
        ((RELEASE, NOW),),
        ("overwrite-in-use", "over-arrival"),
        ("tma.load s", "mbar.arrive"),
    ),
    "result read before its wait": ("product", (("wg.wait 0 %next", "wg.wait 0"),), ("outstanding",), ("narrow %c",)),
    "no wait at all": (
        "product",
        (("wg.wait 0 %next", ""),),
        ("outstanding", "overwrite-in-use"),
        ("narrow", "tma.load"),
    ),
    "wait that leaves the group in flight": (
        "chain",
        (("wg.wait 1 %s\n", "wg.wait 2 %s\n"),),
        ("outstanding",),
        ("wg.wait 2 %s",),
    ),
    "wait without a commit": ("one_consumer", (("wg.commit\n", "\n"),), ("outstanding",), ("wg.wait 0 %next",)),
    "no fence before the first MMA": ("product", (("wg.fence\n", "\n"),), ("missing-fence",), ("mma wgmma.f16",)),
    "no fence after a write to an operand": (
        "chain",
        (("wg.fence\n        %end", "\n        %end"),),
        ("missing-fence",),
        ("%end = mma wgmma.f16 %last",),
    ),
    "operand written while an MMA reads it": (
        "chain",
        (("wg.wait 0 %next\n", ""),),
        ("overwrite-in-use",),
        ("for t in", "tma.load"),
    ),
    "no proxy fence": ("product", (("fence.proxy\n", "\n"),), ("missing-fence",), ("tma.store so[consumer]",)),
    "proxy fence after the barrier": (
        "product",
        (("fence.proxy\n        barrier (consumer + 1), 128", "barrier (consumer + 1), 128 fence.proxy"),),
        ("missing-fence",),
        ("tma.store so[consumer]",),
    ),
    "no barrier before the store": (
        "product",
        (("barrier (consumer + 1), 128", ""),),
        ("unsynchronised-read", "missing-fence"),
        ("tma.store so[consumer]",),
    ),
    "store buffer written too early": (
        "static",
        (("tma.wait 0 read\n", "\n"),),
        ("overwrite-in-use",),
        ("st.matrix so[0]",),
    ),
    "store buffer written with no barrier after the wait": (
        "static",
        (("barrier 1, 128", ""),),
        ("overwrite-in-use",),
        ("st.matrix so[0]",),
    ),
    "store without a commit": ("product", (("tma.commit\n", "\n"),), ("unfinished",), ("tma.store so[consumer]",)),
    "end without a wait": ("product", (("tma.wait 0 read", ""),), ("unfinished",), ("tma.store so[consumer]",)),
    "consumer number of a barrier": (
        "product",
        (("barrier (consumer + 1), 128", "barrier 1, 128"),),
        ("unsynchronised-read", "missing-fence", "barrier"),
        ("tma.store", "barrier 1, 128"),
    ),
    "barrier that waits for more": (
        "product",
        (("barrier (consumer + 1), 128", "barrier (consumer + 1), 256"),),
        ("deadlock",),
        ("consumers[1] at `barrier (consumer + 1), 256",),
    ),
    "missing named arrival": (
        "named",
        (("if consumer == 1 { named.arrive 1, 256 }", ""),),
        ("deadlock",),
        ("block[0] at `barrier (1 + consumer), 256",),
    ),
    "synchronous copy over an MMA's operand": (
        "alone",
        (
            ("+ %acc over k :", "+ %acc over k async :"),
            ("barrier\n", "wg.fence\n"),
            ("yield %next", "wg.commit yield %next"),
        ),
        ("overwrite-in-use",),
        ("tma.load sa[0]",),
    ),
    "remote arrival missing": (
        "cluster",
        ((" each warp cluster", " each warp"),),
        ("deadlock",),
        ("producer at `mbar.wait empty[r_stage]",),
    ),
    "one block copies for itself": (
        "cluster",
        ((" multicast 2", ""), ("mbar.expect full[r_stage] 32768", "mbar.expect full[r_stage] 32784")),
        ("deadlock",),
        ("consumer of block 1 at `mbar.wait full",),
    ),
    "queue that is never released": (
        "dynamic",
        (("emptyt stages 2 arrivals 4", "emptyt stages 2 arrivals 5"),),
        ("deadlock",),
        ("producer at `mbar.wait emptyt",),
    ),
    "queue released too early": (
        "dynamic",
        (("emptyt stages 2 arrivals 4", "emptyt stages 2 arrivals 2"),),
        ("over-arrival", "unordered-writes", "overwrite-in-use"),
        ("mbar.arrive emptyt", "queue.push"),
    ),
}


@pytest.mark.parametrize("what", sorted(FAULTS))
@pytest.mark.parametrize("seed", SEEDS)
def test_planted_fault(what: str, seed: int) -> None:
    name, changes, kinds, ops = FAULTS[what]
    error = fails(name, *changes, seed=seed)
    assert_found(error, kinds, ops)


@pytest.mark.parametrize("seed", SEEDS)
def test_accumulator_that_was_taken_over(seed: int) -> None:
    """The registers of an accumulator are those of the result: the old name has no value any more."""
    text, inputs, _ = CASES["one_consumer"]()
    twice = "wg.commit\n          wg.wait 0 %next"
    assert twice in text
    again = (
        "%more = mma wgmma.f16 smem sa[r_stage] swizzle 128, smem sb[r_stage] swizzle 128 + %next over k async "
        ": f32[i: 64, n: 64] #acc wg.commit wg.wait 0 %more %bad = add %next, %next : f32[i: 64, n: 64] #acc"
    )
    with pytest.raises(InterpError) as info:
        run_module(parse(text.replace(twice, again)), inputs, seed=seed)
    assert (info.value.kind, info.value.op[:4]) == ("outstanding", "%bad")


def test_positions_outside_of_an_axis_without_a_tile_are_zeros() -> None:
    text, inputs, _ = CASES["alone"]()
    text = text.replace("input A: f16[64, 128]", "input A: f16[1, 64, 128]").replace("A[i,", "A[t, i,")
    (got,) = run_module(parse(text), {**inputs, "A": inputs["A"][None]}).values()
    want = p.f16(inputs["A"][:, :64]) @ p.f16(inputs["B"][:64])  # the second step reads outside of A
    assert np.allclose(got.astype(np.float64), want, rtol=3e-3, atol=3e-2)


# -- layouts ----------------------------------------------------------------------------------


def wrong(m: MemModule, inputs: dict[str, np.ndarray], want: np.ndarray) -> bool:
    (got,) = run_module(m, inputs).values()
    return not np.allclose(got.astype(np.float64), want, rtol=3e-3, atol=3e-2)


@pytest.mark.parametrize(
    ("buffer", "kind"), [("sa", MmaOp), ("sb", MmaOp), ("sa", TmaLoad), ("so", MatrixStore), ("so", TmaStore)]
)
@pytest.mark.parametrize("swizzle", [32, 64])
def test_wrong_swizzle(buffer: str, kind: type, swizzle: int) -> None:
    text, inputs, want = CASES["one_consumer"]()
    assert wrong(f.change_swizzle(parse(text), buffer, swizzle, f.is_a(kind)), inputs, want)


def test_products_read_swizzled_stages() -> None:
    text, inputs, _ = CASES["one_consumer"]()
    with pytest.raises(InterpError, match="unsupported"):
        run_module(f.change_swizzle(parse(text), "sb", 0, f.is_a(MmaOp)), inputs)


def swapped(m: MemModule, layout: str, part: str, first: int, second: int) -> MemModule:
    def change(x: FragLayout) -> FragLayout:
        modes = list(getattr(x, part))
        modes[first], modes[second] = modes[second], modes[first]
        return dataclasses.replace(x, **{part: tuple(modes)})

    return f.edit_layout(m, layout, change)


@pytest.mark.parametrize(("part", "modes"), [("reg", (0, 1)), ("reg", (1, 2)), ("lane", (0, 1))])
def test_wrong_accumulator_layout(part: str, modes: tuple[int, int]) -> None:
    text, inputs, want = CASES["alone"]()
    m = swapped(parse(text.replace("%c vec 2", "%c vec 1")), "acc", part, *modes)
    assert wrong(m, inputs, want)


@pytest.mark.parametrize("modes", [(1, 2), (2, 3)])
def test_convert_to_a_wrong_operand_layout(modes: tuple[int, int]) -> None:
    text, inputs, want = CASES["chain"]()
    assert wrong(swapped(parse(text), "p", "reg", *modes), inputs, want)


def test_matrix_store_ignores_the_declared_registers() -> None:
    """An elementwise result that stmatrix stores does not depend on the declared positions of its registers."""
    text, inputs, want = CASES["product"]()
    assert not wrong(swapped(parse(text), "acc", "reg", 0, 1), inputs, want)

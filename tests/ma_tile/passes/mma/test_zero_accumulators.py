"""``zero-accumulators``: MMAs that ignore their accumulator, and zeros that are not needed then."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nautilus.core.errors import VerifyError
from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.mma.zero_accumulators import ZeroAccumulators
from nautilus.ma_tile.text.printer import format as ma_format
from nautilus.ma_tile.text.printer import parse
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile.passes.epilogue.test_chunk_epilogue import inputs, same
from tests.ma_tile.programs.epilogues import biased, gated
from tests.ma_tile.programs.products import chained


def fresh(m: MemModule) -> MemModule:
    out = ZeroAccumulators().apply(m)
    verify(out)
    assert parse(ma_format(out)) == out
    return out


def test_text(filecheck: Callable[..., None]) -> None:
    out = fresh(gated())
    filecheck(
        ma_format(out),
        """
        CHECK: %zero = const 0.0
        CHECK: [[A:%[a-z_0-9]+]] = undefined : f32[i: 64, j: 128] #acc
        CHECK-NEXT: [[B:%[a-z_0-9]+]] = undefined : f32[i: 64, j: 128] #acc
        CHECK-NEXT: %c0, %c1 = for t in 0..2 carry(%x0 = [[A]], %x1 = [[B]]) {
        CHECK: %n0 = mma {{.*}} + %x0 over k zero_init t == 0 : f32
        CHECK: %n1 = mma {{.*}} + %x1 over k zero_init t == 0 : f32
        CHECK: max %c0, %zero
        """,
    )
    assert "zero = const" not in ma_format(fresh(biased()))  # nobody else reads it there
    same(gated(), out)


def test_only_the_first_product_of_a_chain_starts() -> None:
    text = ma_format(biased())
    product = next(line for line in text.splitlines() if "%n0 = mma" in line)
    again = product.replace("%n0 =", "%n00 =").replace("+ %x0", "+ %n0")
    m = parse(text.replace(product, f"{product}\n{again}").replace("yield %n0", "yield %n00"))
    out = fresh(m)
    assert ma_format(out).count("zero_init t == 0") == 1 and "+ %n0 over k :" in ma_format(out)
    same(m, out)


def test_a_loop_from_elsewhere() -> None:
    m = parse(ma_format(biased()).replace("for t in 0..2", "for t in i0 + 1..i0 + 2"))
    assert "zero_init t == i0 + 1" in ma_format(fresh(m))
    same(m, fresh(m))


def test_a_loop_that_may_not_run_keeps_its_zeros() -> None:
    m = biased(m=256, steps="i0")
    assert fresh(m) == m
    same(m, m)


def test_accumulators_that_others_touch_keep_their_zeros() -> None:
    m = chained()  # the accumulator is scaled before the product
    out = ma_format(fresh(m))
    assert "fresh" not in out and "undefined" not in out
    text = ma_format(biased())
    product = next(line for line in text.splitlines() if "%n0 = mma" in line)
    read = parse(text.replace(product, f"{product}\n      st.global D[i, j], %x0 vec 2"))
    assert ZeroAccumulators().apply(read) == read


@pytest.mark.parametrize("value", ["1.0", "-0.0"])
def test_other_starts_stay(value: str) -> None:
    m = parse(ma_format(biased()).replace("const 0.0", f"const {value}"))
    assert fresh(m) == m


def test_a_product_onto_zeros_outside_of_loops() -> None:
    lines = ma_format(biased(k=64)).splitlines()
    at = next(n for n, line in enumerate(lines) if "%c0 = for" in line)
    body = [
        line.replace("%n0", "%c0").replace("%x0", "%zero").replace("t * 64 + k", "k") for line in lines[at + 1 : at + 4]
    ]
    m = parse("\n".join([*lines[:at], *body, *lines[at + 6 :]]))
    assert "%c0 = mma wgmma.f16 smem a[consumer] swizzle 128, smem b0[0] swizzle 128 over k :" in ma_format(fresh(m))
    same(m, fresh(m))


def test_reading_an_undefined_start_is_an_error() -> None:
    out = ma_format(fresh(biased()))
    with pytest.raises(InterpError, match="undefined-fragment"):
        m = parse(out.replace("zero_init t == 0", "zero_init t == 1"))
        run_module(m, inputs(m))
    with pytest.raises(VerifyError, match="zero_init needs wgmma with an accumulator"):
        verify(parse(out.replace("+ %x0 over k zero_init t == 0", "over k zero_init t == 0")))


def test_a_fresh_product_does_not_add() -> None:
    m = parse(ma_format(biased()).replace("%x0 over k :", "%x0 over k zero_init t == 1 :"))
    values = inputs(m)
    whole, half = (run_module(x, values)["C"].astype(np.float64) for x in (biased(), m))
    first = parse(ma_format(biased()).replace("for t in 0..2", "for t in 1..2"))
    np.testing.assert_array_equal(half, run_module(first, values)["C"])
    assert not np.array_equal(whole, half)

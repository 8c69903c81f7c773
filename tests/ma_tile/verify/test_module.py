"""The verifier accepts the programs that are right and names the rule that others break."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from nautilus.core.errors import UnsupportedError, VerifyError
from nautilus.core.source import NO_SPAN, Span
from nautilus.ma_tile.interp.module import run_module
from nautilus.ma_tile.ir.ops import AsyncCopy, Barrier, GlobalLoad, MemModule, MmaOp, RolesOp
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify, verify_module
from nautilus.ma_tile.verify.shared import interference
from nautilus.targets.limits import limits
from nautilus.targets.records import TARGETS
from tests.ma_tile import faults as f
from tests.ma_tile.programs import plain as p


@pytest.mark.parametrize("make", [lambda: parse(p.COPY), p.gemm, lambda: p.gemm("n_last"), p.chained,
                                  lambda: parse(p.REDUCE), p.roles])  # fmt: skip
@pytest.mark.parametrize("target", sorted(TARGETS))
def test_right_programs_pass(make: Callable[[], MemModule], target: str) -> None:
    verify(replace(make(), target=target))


def rejected(m: MemModule, rule: str, node: str) -> None:
    with pytest.raises(VerifyError) as info:
        verify(m)
    assert info.value.rule == rule, info.value
    assert node in info.value.node


VECTORS = "vectors are aligned neighbours in memory under one condition"
#: (change of the copy program's text, rule, part of the op's text)
COPY_CASES = [
    ("warps 4", "warps 40", "threads of a block", "kernel copy"),
    ("lane(j:8x8, i:4x1)", "lane(j:8x8)", "a layout holds each element once", "#in"),
    ("i:4x16) lane", "i:4x8) lane", "a layout holds each element once", "#in"),
    ("swizzle 128 pad 0", "swizzle 96 pad 0", "swizzles are 0, 32, 64 or 128", "s"),
    ("swizzle 128 pad 0", "swizzle 128 pad 16", "swizzled rows fill their slabs", "s"),
    ("@ 0", "@ 512", "offsets are aligned", "s"),
    ("swizzle 128 pad 0 @ 0", "swizzle 64 pad 0 @ 32", "offsets are aligned", "s"),
    ("ld.global X[r + i, j]", "ld.global X[r + i, j + 1]", VECTORS, "ld.global X"),
    ("ld.global X[r + i, j]", "ld.global X[r + i, j // 4 * 8 + j % 4]", VECTORS, "ld.global X"),
    ("X: f16[77, 64]", "X: f16[77, 65]", VECTORS, "ld.global X"),
    ("where r + i < 77 vec 8 : f16", "where r + i < 77 and j < 60 vec 8 : f16", VECTORS, "ld.global X"),
    ("st.global Y[r + i, j], %y where r + i < 77", "st.global Y[r + i, j], %y where j < 60", VECTORS, "st.global Y"),
    ("s[0] swizzle 128, %x", "s[0] swizzle 64, %x", "an access has its buffer's swizzle", "st.shared s[0]"),
    ("ld.shared s[0]", "ld.shared s[1]", "stages lie inside their buffer or mbarrier", "ld.shared s[1]"),
    ("ld.shared s[0]", "ld.shared q[0]", "shared buffers are declared", "ld.shared q[0]"),
    ("st.global Y[r + i, j], %y", "st.global X[r + i, j], %y", "inputs are not written", "st.global X"),
    ("ld.global X[r + i, j]", "ld.global X[r + i]", "an access has one index for each dimension", "ld.global X"),
    ("ld.global X[r + i, j]", "ld.global X[r + i, z]", "variables are in scope", "ld.global X"),
    ("where r + i < 77 vec 8 : f16", "where r + i vec 8 : f16", "expressions are typed", "ld.global X"),
    ("vec 8 : f16[i: 64, j: 64] #in", "vec 16 : f16[i: 64, j: 64] #in", "vectors have at most 16 bytes", "ld.global"),
    ("vec 8 : f16[i: 64, j: 64] #in", "vec 3 : f16[i: 64, j: 64] #in", "vectors are powers of two", "ld.global"),
    ("vec 8 : f16[i: 64, j: 64] #in", "vec 8 : f16[i: 32, j: 64] #in", "layouts cover their tiles", "ld.global"),
    ("vec 8 : f16[i: 64, j: 64] #in", "vec 8 : bf16[i: 64, j: 64] #in", "loads give the storage type", "ld.global"),
    ("#in = reg(j:8x1, i:4x16)", "#in = reg(i:4x16, j:8x1)", "vectors are contiguous registers", "ld.global"),
    ("[i: 64, j: 64] stages 1", "[i: 64, j: 64] stages 99", "shared memory of a block", "kernel copy"),
    ("barrier", "barrier 1, 96", "barriers count whole warps of the block", "barrier 1, 96"),
    ("barrier", "barrier 16, 128", "barriers are numbered 0 to 15", "barrier 16"),
    ("min_blocks 1", "min_blocks 1 spread 2", "a block is spread over 2, 4 or 8 blocks of a cluster", "kernel copy"),
    (
        "min_blocks 1",
        "min_blocks 1 packed 4",
        "2, 4 or 8 blocks that are packed are single warps without memory in common",
        "kernel copy",
    ),
    (
        "min_blocks 1",
        "min_blocks 1 team 3 in none",
        "the teams of a launch are whole, and their number is known",
        "kernel copy",
    ),
    ("barrier", "barrier team", "a barrier of a team is in a kernel that has teams", "barrier team"),
    ("barrier", "cp.wait -1", "the number of pending groups is in range", "cp.wait -1"),
]

#: A buffer that a TMA copy reads until its wait, and one that is written before.
STORED = """
module stored target sm_90a {
  input X: f16[64, 64]
  output Y: f16[64, 64]
  kernel stored grid 1 warps 4 min_blocks 1 {
    layout #in = reg(j:8x1, i:4x16) lane(j:8x8, i:4x1) warp(i:4x4)
    smem s : f16[i: 64, j: 64] stages 1 swizzle 128 pad 0 @ 0
    smem other : f16[i: 64, j: 64] stages 1 swizzle 128 pad 0 @ 8192
    %x = ld.global X[i, j] vec 8 : f16[i: 64, j: 64] #in
    st.shared s[0] swizzle 128, %x vec 8
    tma.store s[0] swizzle 128, Y[i, j]
    tma.commit
    st.shared other[0] swizzle 128, %x vec 8
    tma.wait 0 read
  }
}
"""


@pytest.mark.parametrize("wait", ["tma.wait -1 read", "wg.wait -1"])
def test_waits_for_fewer_groups_than_none(wait: str) -> None:
    rejected(parse(STORED.replace("tma.wait 0 read", wait)), "the number of pending groups is in range", wait)


def test_a_buffer_is_live_until_the_wait_for_the_copy_that_reads_it() -> None:
    (kernel,) = parse(STORED).kernels
    assert frozenset({"s", "other"}) in interference(kernel)
    waits = "    tma.wait 0 read\n"
    (early,) = parse(STORED.replace(waits, "").replace("commit\n", f"commit\n{waits}")).kernels
    assert frozenset({"s", "other"}) not in interference(early)


@pytest.mark.parametrize(("old", "new", "rule", "node"), COPY_CASES)
def test_rules_of_the_copy_program(old: str, new: str, rule: str, node: str) -> None:
    assert old in p.COPY
    rejected(parse(p.COPY.replace(old, new, 1)), rule, node)


def test_swapped_accumulator_is_rejected() -> None:
    rejected(f.swap_registers(p.gemm(), "acc", 0, 1), "fragments are in the instruction's layout", "mma m16n8k16.f16")


@pytest.mark.parametrize("layout", ["p", "qa"])
def test_swapped_operand_is_rejected(layout: str) -> None:
    rule = "fragments are in the instruction's layout"
    rejected(f.swap_registers(p.chained(), layout, 1, 2), rule, "mma" if layout == "p" else "ld.matrix")


def test_wrong_instruction() -> None:
    m = f.edit_ops(p.gemm(), f.is_a(MmaOp), lambda op: (replace(op, instr="m16n8k16.bf16"),))
    rejected(m, "operand and accumulator types are those of the instruction", "mma m16n8k16.bf16")


def test_copy_of_an_impossible_size() -> None:
    m = f.edit_ops(p.gemm(), f.is_a(AsyncCopy), lambda op: (replace(op, vec=1),))
    rejected(m, "copies move 4, 8 or 16 bytes", "cp.async sa[0]")


def test_reduction_needs_scratch() -> None:
    text = p.REDUCE.replace(" over j scratch scratch", " over j", 1)
    rejected(parse(text), "warps that split a reduced axis need scratch", "reduce max %x over j")
    text = p.REDUCE.replace("f32[e: 1024]", "f32[e: 512]")
    rejected(parse(text), "scratch holds one element a warp, register and lane", "reduce max")


def test_a_role_has_no_reduction_over_warps() -> None:
    """The printed text exchanges the parts of warps at a barrier that all threads of the block execute."""
    head, body = p.REDUCE.split("    %x =")
    inner = f"    roles {{ role all warps 0..4 {{ %x ={body.rsplit('  }', 1)[0]} }} }}\n  }}\n}}\n"
    rejected(parse(head + inner), "warps exchange parts at a barrier of the whole block", "reduce max")


def test_operand_that_is_no_projection() -> None:
    text = p.REDUCE.replace("#r = reg(i:8x1) lane(*:32)", "#r = reg() lane(i:8x1, *:4)")
    rejected(parse(text), "results of reductions are projections", "reduce max")


def test_buffers_that_overlap_in_space_and_time() -> None:
    def overlap(m: MemModule) -> MemModule:
        (k,) = m.kernels
        smem = tuple(replace(s, offset=8192) if s.name == "sv" else s for s in k.smem)
        return replace(m, kernels=(replace(k, smem=smem),))

    rejected(overlap(p.chained()), "buffers that share bytes are not live at the same time", "sk, sv")


def test_interference() -> None:
    (k,) = p.chained().kernels
    assert interference(k) == {frozenset(x) for x in (("sq", "sk"), ("sq", "sv"), ("sk", "sv"))}
    (k,) = parse(p.COPY).kernels
    assert interference(k) == frozenset()


def test_roles() -> None:
    m = p.roles()
    (k,) = m.kernels
    (op,) = k.body
    assert isinstance(op, RolesOp)
    both = replace(op, roles=tuple(replace(r, first_warp=0) for r in op.roles))
    rejected(replace(m, kernels=(replace(k, body=(both,)),)), "roles have warps of their own", "roles")
    odd = replace(op, roles=tuple(replace(r, registers=23) for r in op.roles))
    rule = "register budgets are multiples of 8 from 24 to 256"
    rejected(replace(m, kernels=(replace(k, body=(odd,)),)), rule, "roles")


def test_one_definition() -> None:
    rejected(f.double_op(parse(p.COPY), f.is_a(GlobalLoad)), "a fragment has one definition", "%x = ld.global")


@dataclass(frozen=True)
class Strange:
    span: Span = NO_SPAN


def test_unknown_ops_are_rejected() -> None:
    odd = f.edit_ops(parse(p.COPY), f.is_a(Barrier), lambda op: (Strange(),))  # type: ignore[return-value, arg-type]
    rejected(odd, "known operations", "Strange")


def test_targets() -> None:
    assert limits("sm_90f") is limits("sm_90") is not limits("sm_90a")
    with pytest.raises(UnsupportedError, match="sm_75"):
        limits("sm_75")
    with pytest.raises(VerifyError, match="shared memory of a block"):
        verify_module(p.gemm(), replace(limits("sm_80"), smem_block=8192))


# -- variables and axes, parts of stages ----------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("let r = block * 64", "let j = block * 64\n    let r = block * 64"),
        ("    barrier\n", "    let i = block\n    barrier\n"),
        ("    barrier\n", "    for i in 0..2 carry() {\n      yield\n    }\n    barrier\n"),
    ],
    ids=["grid", "let", "loop"],
)
def test_variables_are_not_called_as_axes(old: str, new: str) -> None:
    """One name in an index would stand for both."""
    assert old in p.COPY
    rejected(parse(p.COPY.replace(old, new)), "variables are no tile axes", "")
    verify(
        parse(p.COPY.replace(old, new.replace("let j", "let q").replace("let i", "let q").replace("for i", "for q")))
    )


PART = """
module part target sm_80 {
  input X: f32[8, 64]
  output Y: f32[4, 32]
  kernel part grid 1 warps 1 min_blocks 1 {
    layout #all = reg(i:8x1, j:2x32) lane(j:32x1) warp()
    layout #some = reg(i:4x1) lane(j:32x1) warp()
    layout #more = reg(i:16x1) lane(j:32x1) warp()
    layout #other = reg(k:4x1) lane(j:32x1) warp()
    smem s : f32[i: 8, j: 64] stages 1 swizzle 0 pad 0 @ 0
    %x = ld.global X[i, j] vec 1 : f32[i: 8, j: 64] #all
    st.shared s[0], %x vec 1
    barrier
    %y = ld.shared s[0] vec 1 : f32[i: 4, j: 32] #some
    st.global Y[i, j], %y vec 1
  }
}
"""


def test_a_load_may_read_the_beginning_of_a_stage() -> None:
    m = parse(PART)
    verify(m)
    x = p.random(4, 8, 64).astype(np.float32)
    np.testing.assert_array_equal(run_module(m, {"X": x})["Y"], x[:4, :32])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ld.shared s[0] vec 1 : f32[i: 4, j: 32] #some", "ld.shared s[0] vec 1 : f32[i: 16, j: 32] #more"),
        ("ld.shared s[0] vec 1 : f32[i: 4, j: 32] #some", "ld.shared s[0] vec 1 : f32[k: 4, j: 32] #other"),
        ("st.shared s[0], %x vec 1\n    barrier", "st.shared s[0], %x vec 1\n    barrier\n    %z = const 0.0 : f32"
         "[i: 4, j: 32] #some\n    st.shared s[0], %z vec 1"),
    ],
    ids=["more than the stage", "another axis", "a store of a part"],
)  # fmt: skip
def test_other_parts_of_stages_are_rejected(old: str, new: str) -> None:
    assert old in PART
    rejected(parse(PART.replace(old, new)), "an access moves a whole stage", "s")

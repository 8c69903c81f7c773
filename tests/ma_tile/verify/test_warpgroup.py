"""Text form and verifier of the sm_90a ops: right programs pass, broken ones are rejected by their rule."""

from __future__ import annotations

import pytest

from nautilus.core.errors import VerifyError
from nautilus.ma_tile.text import format as to_text
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile.programs import warpgroup as w


@pytest.mark.parametrize("name", sorted(w.ALL))
def test_text_parses_back_equal(name: str) -> None:
    m = w.module(name)
    text = to_text(m)
    assert parse(text) == m
    assert to_text(parse(text)) == text


@pytest.mark.parametrize("name", sorted(w.ALL))
def test_right_programs_pass(name: str) -> None:
    verify(w.module(name))


MAJORS = "shared operands have a major order that the instruction reads"
PATTERN = "stages of TMA copies and wgmma operands are aligned to their swizzle pattern"
FRAGMENTS = "fragments are in the instruction's layout"
ROWS = "rows of TMA copies are multiples of 16 bytes"
FLIGHT = "outstanding results are not read"
GROUPS = "a wait covers the results that it lists"
FENCE = "a wg.fence stands between a write to a fragment and the MMA that uses it"
ALONE = "a single role has no fragments and no thread barriers"

#: (program, old, new, rule, part of the node)
CASES = [
    ("product", "target sm_90a", "target sm_90", "the target has TMA and wgmma", "mbar.expect"),
    ("product", "over k async", "over k ahead 1 async", "wgmma has no prefetched k-steps", "mma"),
    ("product", "swizzle 128 pad 0 @ 0", "swizzle 128 pad 0 @ 1024", "buffers that share bytes are not live", "sa"),
    ("product", "warps 4..12", "warps 2..10", "roles have warps of their own", "roles"),
    ("product", "consumers 2 {", "consumers 3 {", "consumers are equal parts of whole warps", "roles"),
    ("product", "registers 240", "registers 264", "register budgets are multiples of 8 from 24 to 256", "roles"),
    ("product", "registers 240", "registers 240 decrease", "budgets change what the launch allocates", "roles"),
    ("product", "registers 24 ", "registers 24 increase ", "budgets change what the launch allocates", "roles"),
    ("product", "over k async", "over k paired async", "paired loads read 16-bit fragments", "mma"),
    ("product", "full[r_stage] 24576", "full[r_stage] 16384", "an mbarrier expects the bytes", "expect"),
    ("product", "full[r_stage] 24576", "full[r_stage] 0", "an mbarrier expects a multiple of 16", "mbar.expect"),
    ("product", "B[n, t * 64 + k]", "B[n, t * 64 + 2 * k]", "indices of TMA copies are base, base + AXIS", "tma"),
    ("product", "B[n, t * 64 + k]", "B[n, t * 64 + k + n]", "indices of TMA copies are base, base + AXIS", "tma"),
    ("product", "B[n, t * 64 + k]", "B[k, t * 64 + n]", "a TMA copy has the same contiguous axis", "tma"),
    ("product", "B[n, t * 64 + k]", "B[3, t * 64 + k]", "a TMA copy moves a box of the stage's shape", "tma.load"),
    ("product", "B[n, t * 64 + k]", "B[n]", "an access has one index for each dimension", "tma.load"),
    ("product", "C[block * 128", "A[block * 128", "inputs are not written", "tma.store"),
    ("product", "input B: f16[64, 256]", "input B: f16[64, 252]", ROWS, "tma.load sb"),
    ("product", "B: f16[64, 256]\n  output C: f16[130, 64]\n",
     "B: f16[64, K]\n  output C: f16[130, 64]\n  param K: i32 <= 256 % 8 device\n",
     "TMA copies move no elements beyond a size", "tma.load"),
    ("product", "wg.wait 0 %next", "wg.wait 1 %next", GROUPS, "wg.wait"),
    ("product", "wg.wait 0 %next", "wg.wait 0", "a wait lists the results that it completes", "wg.wait 0"),
    ("product", "wg.commit\n", "", "a wait lists outstanding results", "wg.wait 0 %next"),
    ("product", "wg.fence\n", "", FENCE, "mma wgmma.f16"),
    ("product", "advance r\n", "advance q\n", "pipelines are declared", "advance q"),
    ("product", "r_phase\n          wg.fence", "q_phase\n          wg.fence", "variables are in scope", "mbar.wait"),
    ("product", "barrier (consumer + 1), 128", "barrier 16, 128", "barriers are numbered 0 to 15", "barrier 16"),
    ("product", "(consumer + 1), 128", "(consumer + 1), 64", "barriers count whole warps of the block", "64"),
    ("product", "each warp", "each lane", "threads arrive, or the warps of a consumer", "mbar.arrive"),
    ("product", "each warp", "each warp cluster", "clusters are declared", "mbar.arrive"),
    ("product", "24 single {", "24 single { fence.proxy", ALONE, "fence.proxy"),
    ("product", "24 single {", "24 single { tma.load sb[0] swizzle 128, B[n, k]", "a synchronous TMA", "tma"),
    ("product", "24 single {", "24 single { let r_stage = 1", "variables do not shadow", "let r_stage"),
    ("product", "registers 240 consumers 2", "consumers 1", "layouts fit the role", "const"),
    ("product", "warps 0..4 registers", "warps 0..3 registers", "register budgets are of whole warpgroups", "roles"),
    ("product", "24 single {", "24 single { let x = 1i64 let y = x", "variables keep their type", "let y"),
    ("product", "[n: 64, k: 64] stages 3 swizzle 128", "[n: 64, k: 64] stages 3 swizzle 64", "an access has its", "sb"),
    ("product", "[consumer] swizzle 128, %h", "[consumer] swizzle 128, %c",
     "stmatrix moves 16-bit elements", "st.matrix"),
    ("product", "f16[i: 64, n: 64] stages 2", "f16[n: 64, i: 64] stages 2", FRAGMENTS, "st.matrix"),
    ("one_consumer", "warps 4..8 registers 240", "warps 4..7", "layouts fit the role", "const"),
    ("alone", "stages 1 swizzle 128 pad 0 @ 8192", "stages 1 swizzle 128 pad 0 @ 8208", "offsets are aligned", "sb"),
    ("alone", "warps 4 min", "warps 8 min", "layouts fit the role", "const"),
    ("alone", "over k :", "over k async :", FENCE, "mma"),
    ("chain", "wg.wait 1 %s\n", "", FLIGHT, "exp %s"),
    ("chain", "wg.wait 1 %s\n", "wg.wait 1 %next\n", GROUPS, "wg.wait 1 %next"),
    ("chain", "wg.wait 0 %next", "wg.wait 0 %s", "a wait lists outstanding results", "wg.wait 0 %s"),
    ("static", "v, iteration in 8 static", "v, iteration in 9 static", "all roles process the same tiles", "tile.loop"),
    ("static", "v, iteration in 8 static", "v, iteration in 8 random", "known orders of tiles", "tile.loop"),
    ("static", "tile.loop v, iteration in", "tile.loop v, v in", "variables do not shadow", "tile.loop v, v"),
    ("dynamic", "let v = t_next", "queue.pop v, next[t_stage]", "a dynamic tile comes through the queue", "tile.loop"),
    ("dynamic", "queue.push next[t_stage], v", "queue.pop x, next[t_stage]",
     "one role of one consumer sends", "tile.loop"),
    ("dynamic", "emptyt stages 2 arrivals 4", "emptyt stages 2 arrivals 8", "every warp that receives", "tile.loop"),
    ("dynamic", "mbar.wait fullt[", "mbar.wait full[", "all roles use one queue and its mbarriers", "tile.loop"),
    ("dynamic", "tile.reset v of 8", "", "the sender of tiles uses the tile counter", "tile.loop"),
    ("dynamic", "tile.fetch t_next", "", "the sender of tiles uses the tile counter", "tile.loop"),
    ("dynamic", "tile.reset v of 8", "tile.reset v of 9", "the counter is reset after the last", "tile.reset"),
    ("dynamic", "break if v >= 8", "break if v >= 7", "a dynamic tile loop ends where", "tile.loop"),
    ("dynamic", "tile.first t_next", "let t_next = block tile.first x", "a fetch rewrites the variable", "tile.fetch"),
    ("dynamic", "i32[x: 1]", "i32[x: 2]", "a queue holds one i32 a stage", "queue.push"),
    ("static", "let first = v * 64", "break if v >= 8", "a dynamic tile loop ends where", "tile.loop"),
    ("product", "24 single {", "24 single { break if 1 > 0", "a break leaves the tile loop around it", "break"),
    ("dynamic", "let first = v * 64", "tile.fetch t_next", "the sender of tiles uses the tile", "tile.loop"),
    ("cluster", "cluster 2 {", "cluster 3 {", "clusters have 2, 4 or 8 blocks", "kernel"),
    ("cluster", "grid 2", "grid 3", "clusters are full", "kernel"),
    ("cluster", "multicast 2", "multicast 4", "a multicast load goes to all blocks of the cluster", "tma.load"),
    ("cluster", "sb : f16[n: 64, k: 128]", "sb : f16[n: 8, k: 64]", "the blocks of a cluster copy equal", "tma.load"),
    ("cluster", " each warp cluster", " each warp", "stages of multicast loads are released to all", "tma.load"),
    (
        "cluster", "advance r\n          yield %next", "mbar.arrive empty[r_stage] each warp advance r yield %next",
        "all arrivals on a barrier come from the cluster", "mbar.arrive",
    ),
    (
        "dynamic", "grid 3 warps 8 min_blocks 1 {", "grid 4 warps 8 min_blocks 1 cluster 2 {",
        "the blocks of a cluster process tiles in a static order", "tile.loop",
    ),
    ("named", "named.arrive 1, 256", "named.arrive 1, 128", "some threads wait at a named barrier", "named.arrive"),
    ("named", "named.arrive 1, 256", "named.arrive 0, 256", "barrier 0 is the barrier of the", "named.arrive"),
    ("named", "consumers 2 {", "consumers 3 {", "consumers are equal parts of whole warps", "kernel named"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "rule", "node"), CASES)
def test_rules(name: str, old: str, new: str, rule: str, node: str) -> None:
    text = w.ALL[name]()
    assert old in text
    with pytest.raises(VerifyError) as info:
        verify(parse(text.replace(old, new, 1)))
    assert info.value.rule.startswith(rule), info.value
    assert node in info.value.node


def rejected(text: str, rule: str) -> None:
    with pytest.raises(VerifyError) as info:
        verify(parse(text))
    assert info.value.rule == rule, info.value


def test_majors() -> None:
    """Only 2-byte types are read with the summed axis outside."""
    text = w.alone().replace("f16", "s8").replace("s8[", "i8[").replace("f32", "i32").replace("const 0.0", "const 0")
    rejected(text.replace("swizzle 128", "swizzle 64"), MAJORS)


def test_a_pattern_that_starts_inside_another() -> None:
    text = w.alone().replace("swizzle 128", "swizzle 64").replace("@ 8192", "@ 8256")
    rejected(text, PATTERN)


def test_right_operand_in_registers() -> None:
    text = w.chain().replace("%p, smem sv[v_stage] swizzle 128 + %acc", "smem sv[v_stage] swizzle 128, %p + %acc")
    with pytest.raises(VerifyError):
        verify(parse(text))


def test_operand_layout() -> None:
    rejected(w.chain().replace("j:2x1, i:2x8, j:2x8", "j:2x1, j:2x8, i:2x8"), FRAGMENTS)

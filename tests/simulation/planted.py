"""Single faults in printed text: what a wrong emitter or a wrong pass could print."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Plant:
    """Replaces a match of ``pattern`` by ``new``.

    ``at``: the match of the suite.  ``redundant``: why a kind of kernel is right without what is replaced.  ``absent``:
    kinds without such text.
    """

    name: str
    pattern: str
    new: str
    at: int = 0
    redundant: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()

    def texts(self, text: str, most: int = 0) -> list[tuple[int, str]]:
        """(line, text with the fault in it), for ``most`` matches spread over the text, or for the one of the suite."""
        found = list(re.finditer(self.pattern, text))
        count = min(most, len(found))
        chosen = (
            [found[n * (len(found) - 1) // max(1, count - 1)] for n in range(count)] if most else found[self.at :][:1]
        )
        return [
            (text.count("\n", 0, m.start()) + 1, text[: m.start()] + m.expand(self.new) + text[m.end() :])
            for m in chosen
        ]


def _call(name: str, new: str = ";") -> tuple[str, str]:
    return rf"(?m)^( +){name}[^\n]*;$", rf"\g<1>{new}"


_BOTH = ("attention", "gemm")

#: of every kernel with TMA, mbarriers and wgmma
WARPGROUP = (
    Plant("a producer waits for the other parity", r"(mbarrier_wait\([^\n]*), 1 - (\w+)\);", r"\1, \2);"),
    Plant("a producer does not wait", r"mbarrier_wait\([^\n]*, 1 - s_(?:v|a)_\w+\);", ";"),
    Plant("a consumer waits for the other parity", r"(mbarrier_wait\([^\n]*), (\w+_phase_2)\);", r"\1, 1 - \2);"),
    Plant("a consumer does not wait", r"mbarrier_wait\([^\n]*, s_\w+_phase_2\);", ";"),
    Plant("no flip of a phase", r"(?m)^ +(\w+_phase(?:_2)?) \^= 1;$", ";"),
    Plant("a stage too early", r"if \(\+\+(\w+_stage(?:_2)?) == (\d)\)", r"if (++\1 == \2 - 1)"),
    Plant("a stage too late", r"if \(\+\+(\w+_stage(?:_2)?) == (\d)\)", r"if (++\1 == \2 + 1)"),
    Plant("no arrival", *_call("mbarrier_arrive")),
    Plant("fewer arrivals expected", r"(mbarrier_init\([^\n]*), 8\);", r"\1, 7);", at=-3),
    Plant("more arrivals expected", r"(mbarrier_init\([^\n]*), (\d+)\);", r"\1, \2 + 1);"),
    Plant("an mbarrier that is not initialised", *_call("mbarrier_init")),
    Plant("no fence after the initialisation", *_call("fence_mbarrier_init")),
    Plant("fewer bytes announced", r"(mbarrier_expect\([^\n]*), (\d+)\);", r"\1, \2 / 2);"),
    Plant("more bytes announced", r"(mbarrier_expect\([^\n]*), (\d+)\);", r"\1, \2 + 16);"),
    Plant("no bytes announced", *_call("mbarrier_expect")),
    Plant("no barrier after the initialisation", r"(?m)^    (?:__syncthreads|cluster_barrier)\(\);$", ";"),
    Plant("one more group left to a wait", r"wgmma_wait<(\d)>", r"wgmma_wait<\1 + 1>"),
    Plant("a wait for fewer groups", r"wgmma_wait<\d>", "wgmma_wait<7>"),
    Plant("no wait for MMAs", *_call("wgmma_wait")),
    Plant("no commit of MMAs", *_call("wgmma_commit")),
    Plant("no fence of MMAs", *_call("wgmma_fence")),
    Plant("an MMA too few", *_call("wgmma_m64")),
    Plant(
        "an MMA's first result is not discarded", r"(wgmma_m64\w+)_zero\(([^\n]*)\);", r"\1(\2, 1);", absent=("gemm",)
    ),
    Plant("an MMA's result is discarded", r"(wgmma_m64\w+\([^\n]*), 1\);", r"\1, 0);"),
    Plant("a descriptor moves too far", r"desc_([ab]\w*) \+ (\d+)", r"desc_\1 + \2 + 2"),
    Plant("a descriptor does not move", r"desc_([ab]\w*) \+ \d+", r"desc_\1"),
    Plant("another operand register", r"(wgmma_m64[^\n]*_held)\[(4|16)\]", r"\1[\2 + 1]", absent=("gemm",)),
    Plant("another swizzle in a descriptor", r"(wgmma_descriptor<\d+, \d+, )128>", r"\g<1>64>"),
    Plant("another stride in a descriptor", r"(wgmma_descriptor<\d+, )1024, ", r"\g<1>512, "),
    Plant(
        "another leading offset in a descriptor",
        r"wgmma_descriptor<(\d{3,}), ",
        r"wgmma_descriptor<\1 / 2, ",
        redundant={"attention": "64 columns are one slab"},
    ),
    Plant("two accumulators swapped", r"\{%0, %1, %2, %3, ([^\n]*wgmma|[^\n]*\})", r"{%1, %0, %2, %3, \1"),
    Plant("transposition flag", r"(p, 1, 1(?:, 0)*), 1; \}", r"\1, 0; }"),
    Plant("another column of a copy", r"(tma_load\w+\([^,\n]+, &\w+, [^,\n]+, )([^,\n]+),", r"\1\2 + 8,"),
    Plant("another row of a copy", r"(tma_load\w+\([^,\n]+, &\w+, [^,\n]+, [^,\n]+, )([^,\n)]+)", r"\1\2 + 1"),
    Plant("no copy", *_call("tma_load")),
    Plant("no store", *_call("tma_store")),
    Plant("another place of a store", r"(tma_store\w+\(&\w+, [^,\n]+, )([^,\n]+),", r"\1\2 + 8,"),
    Plant("no proxy fence", *_call("fence_proxy")),
    Plant("no commit of stores", *_call(r"(?:    )?tma_commit")),
    Plant("no wait for stores", *_call(r"(?:    )?tma_wait_read")),
    Plant("no barrier of a warpgroup", *_call("named_barrier"), at=-2),
    Plant("a barrier with another count", r"(named_barrier\([^\n]*), 128\)", r"\1, 256)"),
    Plant("another swizzle of a store", r"lane_row \^ ", "lane_row + "),
    Plant("a stored fragment moved", r"(stmatrix_x4\([^\n]*\[)n \* 2\]", r"\1n * 2 + 2]"),
    Plant("fewer registers given back", r"registers_less<\d+>", "registers_less<168>"),
    Plant("more registers taken", r"registers_more<\d+>", "registers_more<256>"),
    Plant(
        "no barrier of a warp",
        *_call("__syncwarp"),
        at=1,
        redundant={
            "gemm": "an MMA completes for all lanes of a warp at once",
            "attention": "other barriers of the warp come before the load that reuses the stage",
        },
    ),
    Plant("a box of another size", r"(const cuuint32_t box\[\] = \{\d+, )(\d+)", r"\g<1>\2 / 2"),
    Plant("a stride of another tensor", r"(const cuuint64_t strides\[\] = \{)(\d+)", r"\g<1>\2 * 2"),
    Plant("another swizzle of a map", r"CU_TENSOR_MAP_SWIZZLE_128B(?=, CU_T)", "CU_TENSOR_MAP_SWIZZLE_64B"),
    Plant("another element type of a map", r"CU_TENSOR_MAP_DATA_TYPE_(?:B?FLOAT16)", "CU_TENSOR_MAP_DATA_TYPE_UINT8"),
    Plant("less shared memory", r"(384, )(\d{5,})(, stream>>>)", r"\1\2 - 64\3"),
    Plant(
        "no permission for shared memory",
        r"cudaFuncAttributeMaxDynamicSharedMemorySize, \d+",
        "cudaFuncAttributeMaxDynamicSharedMemorySize, 65536",
    ),
    Plant(
        "the counter is not reset",
        r"\*tile_counter = 0;",
        ";",
        redundant=dict.fromkeys(_BOTH, "the launcher resets it too"),
    ),
    Plant(
        "a tile is skipped", r"gridDim\.x \+ atomicAdd\(tile_counter, 1u\)", "gridDim.x + atomicAdd(tile_counter, 2u)"
    ),
    Plant("a wait that does not repeat", r'"bra again;\\n"', '""'),
)

#: of every cluster, besides
CLUSTER = (
    Plant("a multicast to one block", r"(tma_load_\dd_multicast[^\n]*), 3\);", r"\1, 1);"),
    Plant("no arrival at the other block", *_call("mbarrier_arrive_at")),
    Plant("an arrival at the own block", r"(mbarrier_arrive_at\([^\n]*), lane\);", r"\1, block % 2);"),
    Plant("no wait for the cluster at the end", r"(?s)(.*)\n    cluster_wait\(\);", r"\1\n"),
    Plant("both halves from the same place", r"block % 2 \* 56", "0"),
)

#: of every kernel with cp.async and mma.sync
WARP = (
    Plant("no wait for copies", *_call("cp_async_wait")),
    Plant("one more group left to a wait", r"cp_async_wait<(\d)>", r"cp_async_wait<\1 + 1>"),
    Plant("no commit", *_call("cp_async_commit"), at=1),
    Plant("no barrier", *_call("__syncthreads")),
    Plant("a copy too few", *_call("cp_async_16")),
    Plant("another row of a copy", r"(cp_async_16\([^\n]*swizzle_64<\d+>\()", r"\g<1>1 + "),
    Plant("no mask of a copy", r"(cp_async_16\([^\n]*), [^,\n]*\);", r"\1, true);"),
    Plant("another fragment", r"(mma_m16n8k16_f16\([^\n]*)b\[0\]\)", r"\1b[1])"),
    Plant("no transposition", r"(ldmatrix_x4)_trans\((?=b)", r"\1("),
    Plant("operand registers swapped", r"\{%4, %5, %6, %7\}", "{%5, %4, %6, %7}"),
    Plant("accumulators swapped", r"\{%0, %1, %2, %3\}, \{%4", "{%0, %1, %3, %2}, {%4"),
    Plant("matrices swapped", r"(ldmatrix[^\n]*)\{%0, %1, %2, %3\}", r"\1{%0, %2, %1, %3}"),
    Plant("another lane", r"__shfl_xor_sync\((.*), 2\)", r"__shfl_xor_sync(\1, 4)"),
    Plant("a step of the exchange too few", r"(?m)^.*__shfl_xor_sync.*, 1\)\);$", ";"),
    Plant(
        "halves swapped",
        r"%0, %1, %2;\" : \"=r\"\(y\) : \"f\"\(high\), \"f\"\(low\)",
        '%0, %2, %1;" : "=r"(y) : "f"(high), "f"(low)',
    ),
    Plant("a minimum, not a maximum", r"max\.NaN\.f32 %0, %1, %2", "min.NaN.f32 %0, %1, %2"),
)

#: of a decode kernel whose warps split the keys, besides
DECODE = (
    Plant("no wait for copies", *_call("cp_async_wait"), at=1),
    Plant("one more group left to a wait", r"cp_async_wait<(\d)>", r"cp_async_wait<\1 + 1>", at=1),
    Plant("no commit in front of the loop", *_call("cp_async_commit")),
    Plant("no commit in the loop", *_call("cp_async_commit"), at=2),
    Plant("no commit in the loop over the masked tiles", *_call("cp_async_commit"), at=3, absent=("decode",)),
    Plant("no barrier of a warp", *_call("__syncwarp")),
    Plant("no barrier in front of the partial results", *_call("__syncthreads")),
    Plant("no barrier after the partial results", *_call("__syncthreads"), at=1),
    Plant("a partial result of another warp", r"\bconsumer \* (part_\w+_bytes)", r"(1 - consumer) * \1"),
)

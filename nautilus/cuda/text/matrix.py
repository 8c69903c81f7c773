"""Device functions around one matrix instruction: PTX ISA, "Warp Level Matrix Instructions", "wgmma.mma_async"."""

from __future__ import annotations


def mma(name: str, ptx: str, a: int, b: int, acc: str, reg: str) -> str:
    """``d += a . b``: d 4 accumulators, a and b as 32-bit registers."""
    outs = ", ".join(f'"+{reg}"(d[{i}])' for i in range(4))
    ins = ", ".join([*(f'"r"(a[{i}])' for i in range(a)), *(f'"r"(b[{i}])' for i in range(b))])
    regs_a = ", ".join(f"%{4 + i}" for i in range(a))
    regs_b = ", ".join(f"%{4 + a + i}" for i in range(b))
    regs_d = "%0, %1, %2, %3"
    return (
        f"__device__ __forceinline__ void {name}({acc}* d, const u32* a, const u32* b) {{\n"
        f'    asm volatile("mma.sync.aligned.{ptx} {{{regs_d}}}, {{{regs_a}}}, {{{regs_b}}}, {{{regs_d}}};"\n'
        f"                 : {outs}\n                 : {ins});\n}}"
    )


def mma_f64(name: str) -> str:
    """``d += a . b`` of 16 x 8 x 8 doubles: one instruction since sm_90, four of half the rows and terms before.

    Both are chains of fused multiply-adds in the order of the terms.
    """

    def call(shape: str, d: list[int], a: list[int], b: list[int]) -> str:
        ins = [*(f'"d"(a[{i}])' for i in a), *(f'"d"(b[{i}])' for i in b)]
        places = iter(f"%{i}" for i in range(len(d) + len(ins)))
        groups = [", ".join(next(places) for _ in group) for group in (d, a, b)]
        regs = ", ".join(f"{{{g}}}" for g in (*groups, groups[0]))
        outs = ", ".join(f'"+d"(d[{i}])' for i in d)
        ptx = f"mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64"
        return f'    asm volatile("{ptx} {regs};" : {outs} : {", ".join(ins)});\n'

    quarters = [call("m8n8k4", [2 * m, 2 * m + 1], [m + 2 * k], [k]) for k in range(2) for m in range(2)]
    return (
        f"__device__ __forceinline__ void {name}(double* d, const double* a, const double* b) {{\n"
        f"#if __CUDA_ARCH__ >= 900\n{call('m16n8k8', [*range(4)], [*range(4)], [*range(2)])}"
        f"#else\n{''.join(quarters)}#endif\n}}"
    )


def _element(instr: str) -> str:
    """The operand types of ``instr`` as part of the name of its helper."""
    return "".join(instr.split(".")[1:])


#: instruction -> (types in PTX, depth of a k-step, C type and constraint of accumulators)
WGMMA_TYPES = {
    "wgmma.f16": ("f32.f16.f16", 16, "float", "f"),
    "wgmma.bf16": ("f32.bf16.bf16", 16, "float", "f"),
    "wgmma.tf32": ("f32.tf32.tf32", 8, "float", "f"),
    "wgmma.e4m3": ("f32.e4m3.e4m3", 32, "float", "f"),
    "wgmma.e5m2": ("f32.e5m2.e5m2", 32, "float", "f"),
    "wgmma.e4m3.e5m2": ("f32.e4m3.e5m2", 32, "float", "f"),
    "wgmma.e5m2.e4m3": ("f32.e5m2.e4m3", 32, "float", "f"),
    "wgmma.s8": ("s32.s8.s8", 32, "int", "r"),
    "wgmma.u8": ("s32.u8.u8", 32, "int", "r"),
    "wgmma.s8.u8": ("s32.s8.u8", 32, "int", "r"),
    "wgmma.u8.s8": ("s32.u8.s8", 32, "int", "r"),
}
_OF_NAME = {_element(instr): types for instr, types in WGMMA_TYPES.items()}


def wgmma_name(instr: str, columns: int, registers: bool, trans_a: bool, trans_b: bool) -> str:
    """Name of the helper for one m64nNk instruction (a description that :func:`helper` can read).

    ``registers``: A is in registers.  ``trans_a``, ``trans_b``: the operand is transposed in shared memory.
    """
    kind = ("r" if registers else "t" if trans_a else "s") + ("t" if trans_b else "s")
    return f"wgmma_m64n{columns}_{_element(instr)}_{kind}"


def wgmma(name: str) -> str:
    """``d = a . b`` (+ d where ``add``): issued only. a: 4 registers, or a descriptor like b.

    The form ``zero`` reads no accumulators, so that they need not exist before.
    """
    _, shape, element, kind, *zero = name.split("_")
    columns = int(shape.removeprefix("m64n"))
    types, depth, c, reg = _OF_NAME[element]
    count = columns // 2
    mode, term = ("=", "") if zero else ("+", ", int add")
    outs = ", ".join(f'"{mode}{reg}"(d[{i}])' for i in range(count))
    results = ", ".join(f"%{i}" for i in range(count))
    left = 4 if kind[0] == "r" else 1
    a = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}" if left == 4 else f"%{count}"
    piece = "__float_as_uint(a[{i}])" if element == "tf32" else "a[{i}]"
    ins = ", ".join(f'"r"({piece.format(i=i)})' for i in range(4)) if left == 4 else '"l"(a)'
    b, add = f"%{count + left}", "0" if zero else f"%{count + left + 1}"
    flags = "" if c == "int" else ", 1, 1"
    if element in ("f16", "bf16"):
        flags += (f", {int(kind[0] == 't')}" if left == 1 else "") + f", {int(kind[1] == 't')}"
    last = "" if zero else ', "r"(add)'
    given = "u64 a" if left == 1 else "const float* a" if element == "tf32" else "const u32* a"
    return (
        f"__device__ __forceinline__ void {name}({c}* d, {given}, u64 b{term}) {{\n"
        f'    asm volatile("{{ .reg .pred p; setp.ne.b32 p, {add}, 0;\\n"\n'
        f'                 "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{types} "\n'
        f'                 "{{{results}}}, {a}, {b}, p{flags}; }}"\n'
        f"                 : {outs}\n"
        f'                 : {ins}, "l"(b){last});\n}}'
    )

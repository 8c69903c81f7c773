"""Small MA-tile modules of the sm_90a class and the CUDA text that each must print, as FileCheck lines."""

from __future__ import annotations

from dataclasses import dataclass

from nautilus.core.types import DType
from nautilus.ma_tile.ir.async_ops import WGMMA, wg_a_layout, wg_acc_layout


@dataclass(frozen=True)
class Product:
    """One consumer's product of a ``rows`` x ``depth`` and a ``depth`` x ``columns`` tile.

    ``a``, ``b``: axes as in memory; ``width``: bytes of a swizzled slab of A and of B; ``registers``: A comes from
    registers instead of shared memory.
    """

    instr: str = "f16"
    rows: int = 64
    columns: int = 64
    depth: int = 64
    a: str = "ik"
    b: str = "jk"
    width: tuple[int, int] = (128, 128)
    registers: bool = False

    @property
    def types(self) -> tuple[DType, DType]:
        """Of the operands and of the result."""
        i = WGMMA[f"wgmma.{self.instr}"]
        return next(iter(i.operands)), i.acc

    @property
    def text(self) -> str:
        """The module."""
        sizes = {"i": self.rows, "j": self.columns, "k": self.depth}
        dtype, acc = self.types
        pair = dtype.bytes * self.rows * self.depth, dtype.bytes * self.columns * self.depth
        shape = {x: ", ".join(str(sizes[n]) for n in x) for x in (self.a, self.b)}
        axes = {x: ", ".join(f"{n}: {sizes[n]}" for n in x) for x in (self.a, self.b)}
        vec = WGMMA[f"wgmma.{self.instr}"].pack
        at = sum(pair)
        copies = [f"tma.load s_b[0] swizzle {self.width[1]}, B[{', '.join(self.b)}] mbar full[0]"]
        left, announced = "%a", pair[1]
        if self.registers:
            copies.append(f"%a = ld.global A[{', '.join(self.a)}] vec {vec} : {dtype}[{axes[self.a]}] #a")
        else:
            left, announced = f"smem s_a[0] swizzle {self.width[0]}", at
            copies.append(f"tma.load s_a[0] swizzle {self.width[0]}, A[{', '.join(self.a)}] mbar full[0]")
        body = "\n    ".join(copies)
        return f"""
module product target sm_90a {{
  input A: {dtype}[{shape[self.a]}]
  input B: {dtype}[{shape[self.b]}]
  output C: {acc}[{self.rows}, {self.columns}]
  kernel C grid 1 warps 4 min_blocks 1 {{
    layout #acc = {wg_acc_layout("i", "j", self.rows, self.columns)}
    layout #a = {wg_a_layout(f"wgmma.{self.instr}", "i", "k", self.rows, self.depth)}
    smem s_a : {dtype}[{axes[self.a]}] stages 1 swizzle {self.width[0]} pad 0 @ 0
    smem s_b : {dtype}[{axes[self.b]}] stages 1 swizzle {self.width[1]} pad 0 @ {pair[0]}
    mbar full stages 1 arrivals 1 @ {at}
    mbar.expect full[0] {announced}
    {body}
    mbar.wait full[0] parity 0
    %c = mma wgmma.{self.instr} {left}, smem s_b[0] swizzle {self.width[1]} over k
      : {acc}[i: {self.rows}, j: {self.columns}] #acc
    st.global C[i, j], %c vec 2
  }}
}}
"""


def called(columns: int, name: str, *steps: tuple[int, str, str, int]) -> str:
    """CHECK lines of instructions: first register, operands, and whether they add (else they start from zero)."""
    head = f"wgmma_m64n{columns}_{name}"
    start, end = ("{{(_zero)?}}", ""), ("{{(, 0)?}}", ", 1")
    calls = (f"{head}{start[n]}(&c[{at}], {a}, {b}{end[n]});" for at, a, b, n in steps)
    return "\n".join(f"CHECK{'-NEXT' if n else ''}: {call}" for n, call in enumerate(calls))


def alone(descriptors: str, calls: str) -> str:
    """What stands around a product that waits for itself."""
    return (
        f"CHECK: mbarrier_wait(shared + {{{{[0-9]+}}}}, 0);\nCHECK: wgmma_fence();\n{descriptors}\n{calls}\n"
        "CHECK: wgmma_commit();\nCHECK-NEXT: wgmma_wait<0>();\nCHECK-NEXT: fence_operand{{.*}}(c);"
    )


#: name -> (program, checks). K-major operands step 32 bytes a k-step, MN-major ones whole rows.
PRODUCTS = {
    "both k-major": (
        Product(),
        alone(
            "CHECK: desc_a = wgmma_descriptor<16, 1024, 128>(shared + 0);\n"
            "CHECK-NEXT: desc_b = wgmma_descriptor<16, 1024, 128>(shared + 8192);",
            called(
                64, "f16_ss", (0, "desc_a", "desc_b", 0), *((0, f"desc_a + {n}", f"desc_b + {n}", 1) for n in (2, 4, 6))
            ),
        ),
    ),
    "two slabs deep": (
        Product(depth=128, columns=32),
        alone(
            "CHECK: desc_b = wgmma_descriptor<16, 1024, 128>(shared + 16384);",
            # the second slab of A is 64 rows of 128 bytes away, that of B 32 rows
            called(32, "f16_ss", (0, "desc_a + 6", "desc_b + 6", 1), (0, "desc_a + 512", "desc_b + 256", 1)),
        ),
    ),
    "slabs of 64 bytes": (
        Product(width=(64, 64)),
        alone(
            "CHECK: desc_a = wgmma_descriptor<16, 512, 64>(shared + 0);\n"
            "CHECK-NEXT: desc_b = wgmma_descriptor<16, 512, 64>(shared + 8192);",
            called(64, "f16_ss", (0, "desc_a + 2", "desc_b + 2", 1), (0, "desc_a + 256", "desc_b + 256", 1)),
        ),
    ),
    "slabs of 32 bytes": (
        Product(width=(32, 32), instr="bf16"),
        alone(
            "CHECK: desc_a = wgmma_descriptor<16, 256, 32>(shared + 0);\n"
            "CHECK-NEXT: desc_b = wgmma_descriptor<16, 256, 32>(shared + 8192);",
            called(64, "bf16_ss", (0, "desc_a", "desc_b", 0), (0, "desc_a + 128", "desc_b + 128", 1)),
        ),
    ),
    "columns contiguous": (
        Product(b="kj", columns=128),
        alone(
            "CHECK: desc_b = wgmma_descriptor<8192, 1024, 128>(shared + 8192);",
            called(128, "f16_st", (0, "desc_a", "desc_b", 0), (0, "desc_a + 2", "desc_b + 128", 1)),
        ),
    ),
    "columns contiguous, 64 bytes": (
        Product(b="kj", columns=32, width=(128, 64)),
        alone(
            "CHECK: desc_b = wgmma_descriptor<4096, 512, 64>(shared + 8192);",
            called(32, "f16_st", (0, "desc_a", "desc_b", 0), (0, "desc_a + 2", "desc_b + 64", 1)),
        ),
    ),
    "both turned": (
        Product(a="ki", b="kj", rows=128),
        alone(
            "CHECK: desc_a = wgmma_descriptor<8192, 1024, 128>(shared + 0);",
            called(64, "f16_tt", (0, "desc_a", "desc_b", 0), (0, "desc_a + 128", "desc_b + 128", 1))
            # the second block of 64 rows is the next slab
            + "\n" + called(64, "f16_tt", (32, "desc_a + 512", "desc_b", 0), (32, "desc_a + 640", "desc_b + 128", 1)),
        ),
    ),
    "128 rows": (
        Product(rows=128),
        alone(
            "CHECK: desc_b",
            called(64, "f16_ss", (0, "desc_a + 6", "desc_b + 6", 1), (32, "desc_a + 512", "desc_b", 0)),
        ),
    ),
    "more columns, in whole slabs": (
        Product(columns=320, b="kj"),
        alone(
            "CHECK: desc_b",
            called(192, "f16_st", (0, "desc_a", "desc_b", 0))
            + "\n" + called(128, "f16_st", (96, "desc_a", "desc_b + 1536", 0), (96, "desc_a + 2", "desc_b + 1664", 1)),
        ),
    ),
    "from registers": (
        Product(registers=True, rows=128, b="kj"),
        "CHECK: u32 a[32];\n" + alone(
            "CHECK-NOT: desc_a\nCHECK: desc_b",
            called(64, "f16_rt", (0, "&a[0]", "desc_b", 0), (0, "&a[4]", "desc_b + 128", 1))
            + "\n" + called(64, "f16_rt", (32, "&a[16]", "desc_b", 0)),
        ),
    ),
    "bf16": (
        Product("bf16", b="kj"),
        "CHECK: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16\nCHECK: p, 1, 1, 0, 1; }\n"
        + alone("CHECK: desc_b", called(64, "bf16_st", (0, "desc_a", "desc_b", 0))),
    ),
    "tf32": (
        Product("tf32", columns=24, depth=32),
        "CHECK: wgmma.mma_async.sync.aligned.m64n24k8.f32.tf32.tf32\nCHECK: p, 1, 1; }\n"
        + alone("CHECK: desc_b", called(24, "tf32_ss", (0, "desc_a", "desc_b", 0), (0, "desc_a + 2", "desc_b + 2", 1))),
    ),
    "tf32 from registers": (
        Product("tf32", depth=32, registers=True),
        'CHECK: "r"(__float_as_uint(a[0]))\nCHECK: float a[16];\n'
        + alone("CHECK: desc_b", called(64, "tf32_rs", (0, "&a[0]", "desc_b", 0), (0, "&a[4]", "desc_b + 2", 1))),
    ),
    "signed bytes": (
        Product("s8", columns=48, depth=128),
        "CHECK: wgmma_m64n48_s8_ss(int* d, u64 a, u64 b, int add)\n"
        "CHECK: wgmma.mma_async.sync.aligned.m64n48k32.s32.s8.s8\nCHECK: p; }\nCHECK-NOT: float\n"
        + alone("CHECK: desc_b", called(48, "s8_ss", (0, "desc_a", "desc_b", 0), (0, "desc_a + 2", "desc_b + 2", 1))),
    ),
    "unsigned bytes": (
        Product("u8", columns=16, width=(64, 64)),
        alone("CHECK: desc_b", called(16, "u8_ss", (0, "desc_a", "desc_b", 0), (0, "desc_a + 2", "desc_b + 2", 1))),
    ),
    "8-bit floats": (
        Product("e4m3", columns=256, depth=128),
        "CHECK: wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3\nCHECK: p, 1, 1; }\n"
        "CHECK: product__C(const unsigned char* __restrict__ A,{{.*}} TensorMap map_A_64_128) {\n"
        + alone("CHECK: desc_b", called(256, "e4m3_ss", (0, "desc_a", "desc_b", 0), (0, "desc_a + 2", "desc_b + 2", 1)))
    ),
    "8-bit floats from registers": (
        Product("e5m2", registers=True, depth=128),
        "CHECK: u32 a[16];\n"
        + alone("CHECK: desc_b", called(64, "e5m2_rs", (0, "&a[0]", "desc_b", 0), (0, "&a[4]", "desc_b + 2", 1))),
    ),
}  # fmt: skip

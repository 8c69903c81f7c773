"""C names of what a module declares: arguments, kernels and host functions.

A name that C++ or the emitted text uses itself gets a suffix; every other name stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from nautilus.core.functions import FUNCTIONS, Call
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.cuda.intrinsics import HELPERS
from nautilus.ma_tile.ir.ops import MemKernel, MemModule


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Keywords and alternative tokens of C++20 and of CUDA C++.
_KEYWORDS = _words("""
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
    co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int
    long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template
    this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t
    while xor xor_eq restrict
""")

#: Macros of the headers and of compilers, whose spelling is not reserved: single ones, and families.
_MACROS = _words("""
    NULL NAN INFINITY MAXFLOAT HUGE_VAL HUGE_VALF HUGE_VALL EOF BUFSIZ CHAR_BIT LONG_BIT WORD_BIT BYTE_ORDER BIG_ENDIAN
    LITTLE_ENDIAN NFDBITS NZERO MAX_INPUT MAX_CANON PIPE_BUF P_tmpdir linux unix assert errno
""")
_FAMILIES = re.compile(
    r"(M|FP|MATH|CU|CUDA|CUDART|RTLD|LM|PTHREAD|CLOCK|CLONE|SCHED|SEEK|EXIT|TIME|TIMER|ADJ|MOD|STA)_[A-Z0-9_]+([fl]\w*)?"
    r"|SNANF?\w*|[A-Z0-9_]+_(MAX|MIN|WIDTH)"
)

#: Types and functions that the emitted text mentions.
_USED = _words("""
    f16 bf16 u16 u32 u64 TensorMap size_t int2 int4 uint2 uint4 float2 float4 longlong2 double2 make_uint2 make_uint4
    make_longlong2 make_double2 threadIdx
    blockIdx blockDim gridDim min max abs fabs fabsf floor floorf ceil ceilf rint rintf round exp expf exp2 exp2f
    log logf log2 log2f sin sinf cos cosf tanh tanhf erf erff pow powf sqrt sqrtf rsqrt rsqrtf fma fmaf fmod fmodf
    atomicAdd main
""")

#: Variables of the emitted kernels and of the launcher.
_LOCALS = _words("""
    lane warp block smem shared r k m n stage lane_row word other first part bad partial tile_counter status plan
    attribute config sizes strides box map blocks tensors arguments encode_map EncodeTiled CUresult CUtensorMap Plan
    prepare launch kernel_handles code open_kernels fprintf head own most team_phase
    co_resident is_co_resident
    run total before carry front earlier every lane_place warp_place first_warp low high
""")

_FUNCTIONS = frozenset(name for f in FUNCTIONS.values() if isinstance(f.c, Call) for name in f.c.names)

RESERVED = _KEYWORDS | _MACROS | _USED | _LOCALS | _FUNCTIONS | frozenset(HELPERS)


def is_reserved(name: str) -> bool:
    """Whether C++, CUDA or the emitted text gives ``name`` a meaning; wgmma helpers are made from their shapes."""
    made = name.startswith(("at_", "__", "cuda", "scan_", "wgmma_", "tma_", "load_pinned_"))
    return made or name in RESERVED or _FAMILIES.fullmatch(name) is not None


def sanitize(name: str) -> str:
    """A C identifier that reads like ``name``."""
    text = re.sub(r"[^0-9A-Za-z_]", "_", name)
    if not text or text[0].isdigit():
        text = "v" + text
    return text + "_" if is_reserved(text) else text


def allocate(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """A C identifier for each of ``names``, no two alike and none of ``taken``."""
    used, out = set(taken), dict[str, str]()
    for name in names:
        out[name] = unused(sanitize(name), used, first=2)
        used.add(out[name])
    return out


@dataclass(frozen=True, slots=True)
class ModuleNames:
    """C names at file scope: ``kernels`` maps the kernel to its symbol; ``namespace`` holds all but the functions.

    ``scratch`` and ``stream`` are the parameters of the host functions after ``arguments``.
    """

    namespace: str
    launch: str
    workspace: str
    prepare: str
    launch_prepared: str
    plan_size: str
    kernels: Mapping[str, str]
    arguments: Mapping[str, str]
    scratch: str
    stream: str


_SCOPE = ("code", "launch", "workspace", "prepare", "launch_prepared", "plan_size")


def module_names(module: MemModule) -> ModuleNames:
    """Every C name that ``module`` declares at file scope or as an argument."""
    host = list(allocate(f"{module.name}_{part}" for part in _SCOPE).values())
    symbols = allocate((f"{module.name}__{k.name}" for k in module.kernels), host)
    kernels = dict(zip((k.name for k in module.kernels), symbols.values(), strict=True))
    taken = {*host, *symbols.values()}
    arguments = allocate([*(b.name for b in module.buffers), *(p.name for p in module.params)], taken)
    own = allocate(("workspace", "stream"), {*taken, *arguments.values()})
    code, launch, scratch, prepare, prepared, size = host
    return ModuleNames(
        code, launch, scratch, prepare, prepared, size, kernels, arguments, own["workspace"], own["stream"]
    )


def kernel_symbol(module: MemModule, kernel: MemKernel) -> str:
    """Name of the ``__global__`` function."""
    return module_names(module).kernels[kernel.name]


def kernel_symbols(module: MemModule, only: Iterable[MemKernel] | None = None) -> Mapping[str, str]:
    """Symbol of each ``__global__`` function -> name of its kernel; ``only``: of some kernels."""
    names = None if only is None else {k.name for k in only}
    return {symbol: name for name, symbol in module_names(module).kernels.items() if names is None or name in names}

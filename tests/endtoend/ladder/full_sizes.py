"""Random valid specs at the sizes of real models: every construct, every element type, huge, prime and unit extents.

The spec of a seed depends on the seed only.  Nothing runs these specs: the question is whether they compile for every
target, in time.  A spec that the frontend rejects is a bug in this file.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

#: Common extents of models, primes, units, and sizes on both sides of those of tiles.
EXTENTS = (1, 1, 2, 3, 4, 7, 8, 16, 31, 32, 64, 64, 77, 96, 127, 128, 128, 160, 192, 256, 257, 512, 576, 1000, 1024,
           2048, 4093, 4096, 8192, 16384, 32768, 65537, 131072, 1 << 20)  # fmt: skip
ELEMENTS = 1 << 36  # most elements of a tensor: some have more than 2^31
FLOATS = ("f16", "f16", "f16", "bf16", "bf16", "f32", "f32", "tf32", "f64")
FLOAT8 = ("f8e4m3", "f8e5m2")
INTS = ("i8", "u8", "i16", "i32", "i32", "i64")
_UNARY = ("exp({})", "log(abs({}) + 1)", "tanh({})", "sigmoid({})", "sin({})", "cos({})", "sqrt(abs({}))", "relu({})",
          "gelu({})", "erf({})", "{} * {}", "-({})", "abs({})", "floor({})", "pow(abs({}), 0.7)")  # fmt: skip
_COMBINERS = ("sum", "sum", "sum", "max", "min", "mean", "prod")


@dataclass(frozen=True)
class Tensor:
    """A tensor that definitions may read; ``dims`` are names of extents."""

    name: str
    dims: tuple[str, ...]
    dtype: str

    @property
    def is_float(self) -> bool:
        return self.dtype in (*FLOATS, *FLOAT8, "real")


@dataclass
class Writer:
    """A spec under construction."""

    r: random.Random
    floats: tuple[str, ...] = FLOATS
    sizes: dict[str, int] = field(default_factory=dict)
    inputs: list[Tensor] = field(default_factory=list)
    known: list[Tensor] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def dim(self, most: int = 1 << 20, least: int = 1) -> str:
        """A new extent."""
        name = f"D{len(self.sizes)}"
        self.sizes[name] = self.r.choice([e for e in EXTENTS if least <= e <= most])
        return name

    def input(self, dims: Sequence[str], dtype: str = "") -> Tensor:
        """A new input over ``dims``, in any order of axes that memory may have."""
        dtype = dtype or self.r.choice(self.floats if self.r.random() < 0.85 else INTS)
        made = Tensor(f"X{len(self.inputs)}", tuple(dims), dtype)
        self.inputs.append(made)
        self.known.append(made)
        return made

    def define(self, dims: Sequence[str], value: str, *, output: bool, integer: bool = False) -> Tensor:
        """A definition over ``dims`` with the axes that :func:`axis` names."""
        name = f"T{len(self.lines)}"
        dtype = "i32" if integer else self.r.choice(self.floats)
        typed = "" if output or self.r.random() < 0.7 or integer else f": {self.r.choice(FLOATS[:7])}"
        if output:
            shape = f"[{', '.join(dims)}]" if dims else ""
            self.outputs.append(f"output {name}: {dtype}{shape}")
        axes = ", ".join(f"{axis(d)}: {d}" for d in dims)
        self.lines.append(f"{name}{typed}[{axes}] = {value}" if dims else f"{name}{typed} = {value}")
        made = Tensor(name, tuple(dims), "i32" if integer else "real")
        self.known.append(made)
        return made

    def text(self) -> str:
        """The whole spec."""
        head = ["dim " + ", ".join(f"{d} = {n}" for d, n in self.sizes.items())]
        head += [f"input {t.name}: {t.dtype}[{', '.join(t.dims)}]" for t in self.inputs]
        return "\n".join([*head, *self.outputs, *self.lines]) + "\n"

    # -- values
    def read(self, t: Tensor, at: dict[str, str] | None = None) -> str:
        """An element of ``t`` as a float. ``at``: other indices of some dims."""
        index = [(at or {}).get(d, axis(d)) for d in t.dims]
        text = f"{t.name}[{', '.join(index)}]" if index else t.name
        return text if t.is_float else f"f32({text})"

    def near(self, dims: Sequence[str]) -> list[Tensor]:
        """Tensors that can be read at ``dims``."""
        return [t for t in self.known if set(t.dims) <= set(dims)]

    def value(self, dims: Sequence[str], depth: int) -> str:
        """A float over ``dims``."""
        r = self.r
        usable = self.near(dims)
        if depth == 0 or not usable:
            if usable and r.random() < 0.9:
                return self.read(r.choice(usable))
            return r.choice(["0.5", *(f"f32({axis(d)})" for d in dims)])
        a = self.value(dims, depth - 1)
        match r.randrange(6):
            case 0 | 1:
                return r.choice(_UNARY).format(*[a] * 2)
            case 2:
                return f"({a} {r.choice('+-*')} {self.value(dims, 0)})"
            case 3:
                return f"({a} if {self.condition(dims)} else {self.value(dims, 0)})"
            case 4:
                return f"{r.choice(('max', 'min'))}({a}, {self.value(dims, 0)})"
        return f"{a} / (1 + abs({self.value(dims, 0)}))"

    def condition(self, dims: Sequence[str]) -> str:
        """A mask over ``dims``."""
        r = self.r
        a, b = (axis(r.choice(dims)) if dims else "1" for _ in range(2))
        return r.choice([f"{a} <= {b}", f"{a} < {r.choice((1, 64, 1000))}", f"{a} % {r.choice((2, 3, 64))} == 0",
                         f"abs({a} - {b}) < 128", f"{a} // 16 == {b} // 16", f"{a} < 4 or {b} > 9"])  # fmt: skip


def axis(dim: str) -> str:
    """The index variable of ``dim``."""
    return f"i{dim[1:]}"


def _binder(dims: Sequence[str], guard: str = "") -> str:
    return ", ".join(f"{axis(d)}: {d}" for d in dims) + (f" | {guard}" if guard else "")


def _reductions(w: Writer) -> None:
    """Reductions over several indices, read by each other; some outputs are scalars."""
    dims = [w.dim() for _ in range(w.r.randint(1, 4))]
    for _ in range(w.r.randint(1, 3)):
        w.input(w.r.sample(dims, w.r.randint(1, len(dims))))
    count = w.r.randint(1, 4)
    for n in range(count):
        par = w.r.sample(dims, w.r.randint(0, len(dims)))
        red = [d for d in dims if d not in par]
        value = w.value(dims if red else par, 2)
        if red:
            guard = w.condition([*par, *red]) if w.r.random() < 0.3 else ""
            value = f"{w.r.choice(_COMBINERS)}[{_binder(red, guard)}]({value})"
        w.define(par, value, output=n == count - 1 or w.r.random() < 0.3)


def _product(w: Writer) -> None:
    """Matrix products with any operands: batches, several contracted axes, computed factors, an epilogue, a chain."""
    r = w.r
    batch = [w.dim(64) for _ in range(r.choice((0, 0, 1, 2)))]
    m, n = w.dim(32768), w.dim(32768)
    inner = [w.dim(8192) for _ in range(r.choice((1, 1, 1, 2)))]
    same = r.choice(w.floats) if r.random() < 0.7 else ""
    a = w.input(r.sample([*batch, m, *inner], len(batch) + 1 + len(inner)), same)
    b = w.input(r.sample([*(batch if r.random() < 0.7 else []), n, *inner], len(inner) + 1) if r.random() < 0.1 else
                [*(batch if r.random() < 0.5 else []), n, *inner], same)  # fmt: skip
    left, right = w.read(a), w.read(b)
    if r.random() < 0.3:
        left = r.choice(_UNARY[:8]).format(left)
    if r.random() < 0.2:
        w.input([inner[0]])
        right = f"{right} * {w.read(w.inputs[-1])}"
    result = w.define([*batch, m, n], f"sum[{_binder(inner)}]({left} * {right}) * 0.1", output=r.random() < 0.3)
    if r.random() < 0.4:  # the result feeds another one
        e = w.dim(256)
        v = w.input([n, e] if r.random() < 0.5 else [*batch, e, n], same)
        form = r.choice(("{0}", "exp({0})", "softmax"))
        left = w.read(result)
        if form == "softmax":
            guard = f" | {w.condition([m, n])}" if r.random() < 0.5 else ""
            p = w.define([*batch, m, n], f"softmax[{axis(n)}{guard}]({left})", output=False)
            left = w.read(p)
        else:
            left = form.format(left)
        w.define([*batch, m, e], f"sum[{axis(n)}]({left} * {w.read(v)})", output=True)
        return
    value = w.value([*batch, m, n], 2) if r.random() < 0.6 else f"relu({w.read(result)})"
    w.define([*batch, m, n], f"{value} + {w.read(result)}", output=True)


def _attention(w: Writer) -> None:
    """Scores, a mask, weights and a weighted sum, in any type and layout."""
    r = w.r
    b, h, d = w.dim(64), w.dim(64), w.dim(576, 2)
    m, n, e = w.dim(131072), w.dim(131072), d if r.random() < 0.7 else w.dim(512)
    dtype, other = r.choice(w.floats), r.choice(w.floats)
    other = dtype if r.random() < 0.7 else other
    q, k = (
        w.input(r.choice(([b, h, m, d], [b, m, h, d])), dtype),
        w.input(r.choice(([b, h, n, d], [b, n, h, d])), other),
    )
    v = w.input(r.choice(([b, h, n, e], [b, n, h, e], [b, h, e, n])), other)
    bias = ""
    if r.random() < 0.3:
        bias = " + " + w.read(w.input(r.choice(([h, m, n], [m, n], [b, n])), r.choice(FLOATS[:6])))
    scores = w.define([b, h, m, n], f"sum[{axis(d)}]({w.read(q)} * {w.read(k)}) * 0.125{bias}", output=False)
    guard = f" | {w.condition([m, n])}" if r.random() < 0.5 else ""
    weights = w.define([b, h, m, n], f"softmax[{axis(n)}{guard}]({w.read(scores)})", output=False)
    if r.random() < 0.15:  # heads are mixed
        g = w.dim(16)
        mix = w.input([h, g])
        weights = w.define([b, g, m, n], f"sum[{axis(h)}]({w.read(mix)} * {w.read(weights)})", output=False)
        w.define([b, g, m, e], f"sum[{axis(n)}, {axis(h)}]({w.read(weights)} * {w.read(v)})", output=True)
        return
    w.define([b, h, m, e], f"sum[{axis(n)}]({w.read(weights)} * {w.read(v)})", output=True)


def _convolution(w: Writer) -> None:
    """One or two spatial axes, padding, strides, a chain of two."""
    r = w.r
    b, c, o = w.dim(64), w.dim(512), w.dim(512)
    spatial = [w.dim(1024, 3) for _ in range(r.choice((1, 2)))]
    taps = r.choice((1, 2, 3, 5))
    stride = r.choice((1, 1, 2))
    dtype = r.choice(w.floats)
    x = w.input(r.choice(([b, c, *spatial], [b, *spatial, c])), dtype)
    for _ in range(r.choice((1, 1, 2))):
        kernel = []
        for _ in spatial:
            name = f"D{len(w.sizes)}"
            w.sizes[name] = taps
            kernel.append(name)
        f = w.input(r.choice(([o, c, *kernel], [*kernel, c, o])), dtype)
        at = {s: f"{axis(s)} * {stride} + {axis(k)} - {taps // 2}" for s, k in zip(spatial, kernel, strict=True)}
        guard = " and ".join(f"{e} >= 0 and {e} < {s}" for s, e in at.items())
        value = f"sum[{_binder([c, *kernel], guard)}]({w.read(x, at)} * {w.read(f)})"
        x = w.define([b, o, *spatial], value, output=False)
        c = o
    w.define([b, o, *spatial], f"relu({w.read(x)})", output=True)


def _gather(w: Writer) -> None:
    """Rows chosen by a table, scattered reads, segments with lengths from a tensor."""
    r = w.r
    rows, columns, count = w.dim(131072), w.dim(8192), w.dim(65537)
    table = w.input([count], r.choice(("i32", "i64")))
    x = w.input([rows, columns])
    at = {rows: f"i32({table.name}[{axis(count)}])"}
    picked = w.read(x, at)
    match r.randrange(4):
        case 0:
            w.define([count, columns], f"{r.choice(_UNARY[:8]).format(picked)}", output=True)
        case 1:
            w.define([columns], f"sum[{_binder([count])}]({picked} * 0.5)", output=True)
        case 2:
            n = w.dim(1024)
            y = w.input([columns, n], x.dtype)
            w.define([count, n], f"sum[{_binder([columns])}]({picked} * {w.read(y)})", output=True)
        case _:
            length = w.input([count], "i32")
            guard = f"{axis(columns)} < {length.name}[{axis(count)}]"
            total = w.define([count], f"sum[{_binder([columns], guard)}]({picked})", output=False)
            w.define([count, columns], f"{picked} / (1 + abs({w.read(total)}))", output=True)


def _rowwise(w: Writer) -> None:
    """Norms and softmax along any axis, several outputs, many inputs."""
    r = w.r
    dims = [w.dim() for _ in range(r.randint(1, 3))]
    for _ in range(r.randint(1, 12)):
        w.input(r.sample(dims, r.randint(1, len(dims))))
    for _ in range(r.randint(1, 3)):
        f, d = r.choice(("softmax", "log_softmax", "rms_norm", "layer_norm", "l2_norm")), r.choice(dims)
        extra = ", 1e-3" if "norm" in f else ""
        w.define(r.sample(dims, len(dims)), f"{f}[{axis(d)}]({w.value(dims, 1)}{extra})", output=True)
    if r.random() < 0.4:
        d = r.choice(dims)
        rest = [x for x in dims if x != d]
        value = f"{r.choice(('argmax', 'argmin'))}[{_binder([d])}]({w.value(dims, 1)})"
        w.define(rest, value, output=True, integer=True)


FAMILIES: tuple[Callable[[Writer], None], ...] = (
    _reductions, _product, _product, _attention, _attention, _convolution, _gather, _rowwise,
)  # fmt: skip


def _elements(w: Writer) -> int:
    """Elements of the largest tensor."""
    most = 1
    for t in w.known:
        n = 1
        for d in t.dims:
            n *= w.sizes[d]
        most = max(most, n)
    return most


def program(seed: int, float8: bool = False, elements: int = ELEMENTS) -> str:
    """The text of a spec; its tensors have at most ``elements``. ``float8``: with 8-bit floats."""
    r = random.Random(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    while True:
        w = Writer(random.Random(r.random()), (*FLOATS, *FLOAT8) if float8 else FLOATS)
        family(w)
        if _elements(w) <= elements:
            return w.text()

"""Convolutions, forwards and transposed, with padding, stride, dilation and groups; depthwise ones and poolings."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class _Shift:
    """Along each axis ``y``, ``x`` of ``space`` tap ``a``, ``b`` reads the tensor of ``size`` elements at a place.

    ``turned``: a transposed convolution.  ``first``: the channels stand in front of the axes.
    """

    space: str
    size: int
    taps: int
    stride: int
    step: int
    pad: int
    batch: int
    turned: bool
    first: bool

    @property
    def windows(self) -> list[str]:
        return ["ab"["yx".index(v)] for v in self.space]

    @property
    def out(self) -> int:
        reach = (self.taps - 1) * self.step + 1
        return self.size * self.stride if self.turned else max(1, (self.size + 2 * self.pad - reach) // self.stride + 1)

    def sum(self, v: str, w: str) -> str:
        if self.turned:
            return f"{v} + {self.pad} - {self.step} * {w}"
        return f"{self.stride} * {v} + {self.step} * {w} - {self.pad}"

    @property
    def places(self) -> list[str]:
        sums = [self.sum(v, w) for v, w in zip(self.space, self.windows, strict=True)]
        return [f"({s}) // {self.stride}" for s in sums] if self.turned else sums

    @property
    def inside(self) -> str:
        """The condition that a tap is inside of the tensor."""
        sums = [self.sum(v, w) for v, w in zip(self.space, self.windows, strict=True)]
        hits = [f"({s}) % {self.stride} == 0" for s in sums] if self.turned else []
        return " and ".join([*hits, *(f"0 <= {p} < {self.size}" for p in self.places)])

    @property
    def ranges(self) -> str:
        return ", ".join(f"{w}: {self.taps}" for w in self.windows)

    def shape(self, channels: int, size: int) -> str:
        return self.index(str(channels), [str(size)] * len(self.space), str(self.batch))

    def index(self, channel: str, places: list[str], batch: str = "n") -> str:
        return ", ".join([batch, channel, *places] if self.first else [batch, *places, channel])

    def axes(self, channels: int) -> str:
        return self.index(f"k: {channels}", [f"{v}: {self.out}" for v in self.space], f"n: {self.batch}")


def program(r: random.Random) -> str:
    """The text of a spec."""
    taps, stride, step = r.choice((1, 2, 3, 4, 5)), r.choice((1, 1, 2, 3)), r.choice((1, 1, 2))
    space = r.choice(("x", "yx", "yx"))
    size = r.choice((17, 64, 130, 200) if space == "x" else (7, 8, 12, 16, 19))
    pad, turned = r.choice((0, 1, 2, (taps - 1) * step // 2)), r.random() < 0.25 and stride > 1
    s = _Shift(space, size, taps, stride, step, pad, r.choice((1, 2)), turned, r.random() < 0.4)
    dtype = r.choice(("f16", "f16", "bf16", "f32", "tf32", "i8", "f8e4m3"))
    if r.random() < 0.25 and dtype not in ("i8", "f8e4m3"):
        return _alone(r, s, dtype)
    return _product(r, s, dtype)


def _alone(r: random.Random, s: _Shift, dtype: str) -> str:
    """Each channel by itself: a pooling, or a depthwise convolution."""
    channels, op = r.choice((1, 3, 8, 32, 72)), r.choice(("max", "sum", "depthwise"))
    lines = [f"input X: {dtype}[{s.shape(channels, s.size)}]"]
    value = f"X[{s.index('k', s.places)}]"
    if op == "depthwise":
        lines.append(f"input F: {dtype}[{channels}, {', '.join([str(s.taps)] * len(s.space))}]")
        value += f" * F[k, {', '.join(s.windows)}]"
    body = f"{'max' if op == 'max' else 'sum'}[{s.ranges} | {s.inside}]({value})"
    lines.append(f"output Y: {r.choice(('f32', 'f16'))}[{s.shape(channels, s.out)}]")
    return "\n".join([*lines, f"Y[{s.axes(channels)}] = {f'max({body}, -9)' if op == 'max' else body}"])


def _product(r: random.Random, s: _Shift, dtype: str) -> str:
    """A convolution over channels, in groups of ``c`` channels that give ``k`` results each."""
    groups, c, k = r.choice((1, 1, 1, 2, 4)), r.choice((1, 3, 8, 16, 32, 64, 72)), r.choice((1, 8, 16, 32, 64, 96))
    taps = [str(s.taps)] * len(s.space)
    sizes, names = r.choice((
        ([str(k * groups), str(c), *taps], ["k", "c", *s.windows]),
        ([*taps, str(c), str(k * groups)], [*s.windows, "c", "k"]),
        ([str(k * groups), *taps, str(c)], ["k", *s.windows, "c"]),
    ))  # fmt: skip
    channel = "c" if groups == 1 else f"k // {k} * {c} + c"
    lines = [f"input X: {dtype}[{s.shape(c * groups, s.size)}]", f"input F: {dtype}[{', '.join(sizes)}]"]
    value, weight = f"X[{s.index(channel, s.places)}]", f"F[{', '.join(names)}]"
    if dtype == "i8":
        value, weight = f"i32({value})", f"i32({weight})"
    if r.random() < 0.5:
        body = f"sum[{s.ranges}, c: {c} | {s.inside}]({value} * {weight})"
    else:
        body = f"sum[{s.ranges}, c: {c}](({value} if {s.inside} else 0) * {weight})"
    if dtype != "i8":
        body += " / 4"
        if r.random() < 0.4:
            lines.append(f"input z: f32[{k * groups}]")
            body = f"{r.choice(('relu', 'tanh', 'silu'))}({body} + z[k])"
    result = "i32" if dtype == "i8" else "f32" if dtype == "f32" else r.choice(("f32", "f16"))
    return "\n".join([*lines, f"output Y: {result}[{s.shape(k * groups, s.out)}]", f"Y[{s.axes(k * groups)}] = {body}"])

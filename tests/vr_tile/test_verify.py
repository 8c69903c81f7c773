"""Each rule of the VR-tile verifier rejects a planted fault."""

from __future__ import annotations

import dataclasses
import re

import pytest

from nautilus.core.errors import VerifyError
from nautilus.vr_tile import text
from nautilus.vr_tile.verify import verify
from tests.vr_tile import samples

GOOD = samples.ATTENTION.replace("  input V", "  input I: f16[1, 2, 32, 16]\n  input V")


def test_samples_are_legal() -> None:
    for source in (samples.ATTENTION, samples.GATHER):
        verify(text.parse(source))


FAULTS = [
    ("%x = mul %s, %scale : f32[i: 16, j: 8]", "%x = mul %s, %scale : f32[i: 16]", "operands' union"),
    ("%t = sub %y, %mn : f32", "%t = sub %y, %mn : f16", "elementwise types"),
    ("%t = sub %y, %mn", "%t = sub %y, %c", "elementwise types"),
    (
        "%mr = reduce max %y over j : f32[i: 16]",
        "%mr = reduce max %y over i : f32[i: 16]",
        "removes its axes",
    ),
    ("%mr = reduce max %y over j : f32[i: 16]", "%mr = reduce any %y over j : f32[i: 16]", "reduction types"),
    (
        "%s = dot %q, %kt over k : f32[i: 16, j: 8]",
        "%s = dot %q, %kt over i : f32[j: 8, k: 16]",
        "in both operands",
    ),
    ("dot %q, %kt over k : f32", "dot %q, %kt over k : f16", "compute type"),
    ("dot %ph, %v + %oa over j", "dot %p, %v + %oa over j", "one element type"),
    ("dot %ph, %v + %oa over j", "dot %ph, %v + %la over j", "accumulator"),
    ("dot %ph, %v + %oa over j :", "dot %ph, %v + %oa over j terms 8 :", "terms of a dot are fewer"),
    ("yield %mn, %ln, %on", "yield %mn, %on, %ln", "carried types"),
    ("V[b, h // 2, j0 * 8 + j, d]", "V[b, h // 2, j0 * 8 + j]", "an access has one index for each dimension"),
    ("V[b, h // 2, j0 * 8 + j, d]", "V[b, h // 2, j0 * 8 + i, d]", "indices are integers"),
    ("V[b, h // 2, j0 * 8 + j, d]", "O[b, h // 2, j0 * 8 + j, d]", "complete"),
    ("where i0 * 16 + i < 32", "where i0 * 16 + i", "masks are bool"),
    ("where i0 * 16 + i < 32", "where i0 * 16 + j < 32", "masks are bool"),
    (
        "store O[b, h, i0 * 16 + i, d], %r where i0 * 16 + i < 32",
        "store I[b, h, i0 * 16 + i, d], %r",
        "outputs and temps",
    ),
    ("store O[b, h, i0 * 16 + i, d]", "store O[b, h, i0 * 16 + i, 0]", "each element once"),
    (
        "%q = load Q[b, h, i0 * 16 + i, k] : f16[i: 16, k: 16]",
        "%q = load Q[b, h, i0 * 16 + i, k] : f16[k: 16, i: 16]",
        "order",
    ),
    (
        "%q = load Q[b, h, i0 * 16 + i, k] : f16[i: 16, k: 16]",
        "%q = load Q[b, h, i0 * 16 + i, k] : f16[i: 8, k: 16]",
        "one size",
    ),
    (
        "%q = load Q[b, h, i0 * 16 + i, k] : f16[i: 16, k: 16]",
        "%q = load Q[b, h, i0 * 16 + i, z] : f16[i: 16, z: 16]",
        "declared",
    ),
    ("grid(b: 1, h: 2, i0: 2)", "grid(b: 1, h: 2, i: 2)", "a name denotes one variable"),
    ("for j0 in 0..2 * i0 + 2", "for j0 in 0..2 * j + 2", "loop bounds"),
    ("for j0 in", "for b in", "a name denotes one variable"),
    ("%scale = const 0.25 : f32", "%scale = param eps : f32", "params are declared"),
]


@pytest.mark.parametrize(("old", "new", "rule"), FAULTS)
def test_faults(old: str, new: str, rule: str) -> None:
    assert old in GOOD
    with pytest.raises(VerifyError, match=rule):
        verify(text.parse(GOOD.replace(old, new)))


SCATTER = """module p {
  input key: i32[64]
  output H: i32[8]
  kernel H_fill grid() axes(i: 8) { %s = const 0 : i32[i: 8] store H[i], %s }
  kernel H grid(b: 2) axes(t: 32) {
    %k = load key[b * 32 + t] : i32[t: 32]
    %one = const 1 : i32[t: 32]
    store H[%k], %one where %k >= 0 and %k < 8 atomic sum
  }
}
"""


def test_an_atomic_store_is_legal() -> None:
    m = text.parse(SCATTER)
    verify(m)
    assert text.parse(text.format(m)) == m


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("store H[i], %s }", "}", "what an earlier kernel stored"),
        ("atomic sum", "atomic prod", "does not depend on the order"),
        ("const 1 : i32[t: 32]", "load H[t] : i32[t: 32]", "complete"),
    ],
)
def test_atomic_faults(old: str, new: str, rule: str) -> None:
    assert old in SCATTER
    with pytest.raises(VerifyError, match=rule):
        verify(text.parse(SCATTER.replace(old, new)))


def test_two_definitions() -> None:
    m = text.parse(GOOD)
    k = m.kernels[0]
    twice = dataclasses.replace(m, kernels=(dataclasses.replace(k, body=(k.body[0], *k.body)),))
    with pytest.raises(VerifyError, match="one definition a value"):
        verify(twice)


def test_use_before_definition() -> None:
    m = text.parse(GOOD)
    k = m.kernels[0]
    swapped = dataclasses.replace(m, kernels=(dataclasses.replace(k, body=k.body[5:]),))
    with pytest.raises(VerifyError, match="defined before use"):
        verify(swapped)


def test_unknown_ops_are_rejected() -> None:
    m = text.parse(GOOD)
    k = m.kernels[0]
    alien = dataclasses.make_dataclass("Alien", [("span", object)], frozen=True)(k.body[0].span)
    with pytest.raises(VerifyError, match="every op has a rule"):
        verify(dataclasses.replace(m, kernels=(dataclasses.replace(k, body=(alien,)),)))


def test_chains_adjoin() -> None:
    loop = GOOD[GOOD.index("    %m, %l, %o") : GOOD.index("    %r = div")]
    second = loop.replace("0..2 * i0 + 2", "2 * i0 + 1..4")
    second = re.sub(r"%(?!q\b|scale\b|m0\b|l0\b|o0\b)(\w+)", r"%z\1", second)
    with pytest.raises(VerifyError, match="adjoining ranges"):
        verify(text.parse(GOOD.replace(loop, loop + second)))

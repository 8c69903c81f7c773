"""The shipped specs, for tests that run on all of them, and the specs of other folders, for tests of their own."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
FAMILIES = ("attention", "matmul", "rowwise")
SPECS = [p for name in FAMILIES for p in sorted((ROOT / "specs" / name).glob("*.naut"))]
FOLDERS = tuple(ROOT / "specs" / name for name in ("gallery", "models", "serving"))  # the page of each lists its specs
MORE = [p for folder in FOLDERS for p in sorted(folder.rglob("*.naut"))]
IDS = [p.stem for p in SPECS]
#: those that differ at small sizes too: the others are specs of these with heads of another size
DISTINCT = [p for p in SPECS if not re.search(r"_d\d+$", p.stem)]

PAGED_DECODE = """
const G = Hq // Hkv
input  Q: bf16[B, Hq, D]
input  K: bf16[Pages, P, Hkv, D]
input  V: bf16[Pages, P, Hkv, D]
input  page: i32[B, N // P]
input  len: i32[B]
output O: bf16[B, Hq, D]
assume 0 <= len[b] <= N
S[b, h, j: N] = sum[d](Q[b, h, d] * K[page[b, j // P], j % P, h // G, d]) / sqrt(D)
A[b, h, j] = softmax[j | j < len[b]](S[b, h, j])
O[b, h, d] = sum[j](A[b, h, j] * V[page[b, j // P], j % P, h // G, d])
""".lstrip()


def paged_decode(dims: str) -> str:
    """Decoding over a cache of pages, for the tests of batches; the shipped spec has a fixed number of sequences."""
    return f"dim {dims}\n{PAGED_DECODE}"

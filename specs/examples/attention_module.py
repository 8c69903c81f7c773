"""A PyTorch module whose attention and norm are kernels of nautilusc.

    nautilusc specs/attention/causal_prefill.naut -o attention_op.py --arch sm_90a --dim H=16,M=1024,N=1024,D=64
    nautilusc specs/rowwise/rms_norm.naut -o norm_op.py --arch sm_90a --dim M=1024,N=1024
    python specs/examples/attention_module.py

The last command checks both operators by ``torch.library.opcheck`` and compares the module with one in eager PyTorch,
also compiled and in a CUDA graph: the largest difference, the loss, and the time of a step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path.cwd()))  # where the commands above have written the operators

from attention_op import causal_prefill
from norm_op import rms_norm

HEADS, LENGTH, WIDTH = 16, 1024, 1024


class Attention(torch.nn.Module):
    """Norm, causal attention and projection of one sequence; ``ours``: with the operators, else in eager PyTorch."""

    def __init__(self, ours: bool) -> None:
        super().__init__()
        self.ours = ours
        self.weight = torch.nn.Parameter(torch.ones(WIDTH))
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = torch.nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        norm = rms_norm(x, self.weight) if self.ours else F.rms_norm(x, (WIDTH,), self.weight, 1e-5)
        heads = self.qkv(norm).view(1, LENGTH, 3 * HEADS, WIDTH // HEADS).transpose(1, 2)
        q, k, v = (part.contiguous() for part in heads.chunk(3, dim=1))
        if self.ours:
            mixed = causal_prefill(q, k, v)
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).reshape(LENGTH, WIDTH))


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    shape = (1, HEADS, LENGTH, WIDTH // HEADS)
    q, k, v = (torch.randn(shape, dtype=torch.float16, device="cuda") for _ in range(3))
    x = torch.randn(LENGTH, WIDTH, dtype=torch.float16, device="cuda")
    torch.library.opcheck(causal_prefill, (q, k, v))
    torch.library.opcheck(rms_norm, (x, torch.ones_like(x[0])))
    target = torch.randn_like(x)
    ours, eager = (Attention(flag).half().cuda() for flag in (True, False))
    ours.load_state_dict(eager.state_dict())
    graph = torch.cuda.CUDAGraph()
    ours(x)  # the first call loads the kernels
    with torch.cuda.graph(graph):
        recorded = ours(x)

    def replayed(_: torch.Tensor) -> torch.Tensor:
        graph.replay()
        return recorded

    ways = {
        "eager": eager, "eager, torch.compile": torch.compile(eager), "ours": ours,
        "ours, torch.compile": torch.compile(ours), "ours, CUDA graph": replayed,
    }  # fmt: skip
    want = eager(x)
    for name, step in ways.items():
        y = step(x)
        difference, loss = (want - y).abs().max().item(), F.mse_loss(y.float(), target.float()).item()
        print(f"{name:22} largest difference {difference:.1e}  loss {loss:.6f}  step {microseconds(step, x):6.1f} us")
        assert difference < 1e-2


def microseconds(step: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, steps: int = 50) -> float:
    """The time of a step on the device and between steps, after ten that do not count."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for n in range(10 + steps):
        if n == 10:
            begin.record()
        step(x)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / steps


if __name__ == "__main__":
    main()

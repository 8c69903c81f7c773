"""``sink-loop-masks``: applies a mask of a running result once, after the loop, where no iteration changes the mask.

    %r = for c in .. carry(%a = %0) {           %r' = for c in .. carry(%a = %0) {
      %s = add %a, %t                             %s = add %a, %t
      %n = select %m, %s, %a               =>     yield %s
      yield %n                                  }
    }                                           %r = select %m, %r', %0

Elements where ``%m`` is false keep their initial value before and after, whatever the loop computes for them; all
others are what they were.  Beside the select, only ``%s`` reads ``%a``, and only the select reads ``%s``, which an
elementwise op computes, so that no element meets another one.  Loops of a chain stay as they are: nothing comes between
them.

A thread with many running results, such as the displacements of a correlation, saves as many selects in each iteration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from nautilus.core.records import dataclass
from nautilus.vr_tile.ir import ForOp, MapOp, TileKernel, TileModule, TileOp, Value, operands, results, walk_ops
from nautilus.vr_tile.rewriting import each_kernel


@dataclass(frozen=True, slots=True)
class SinkLoopMasks:
    """Apply the masks of running results after their loops."""

    name = "sink-loop-masks"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` whose running results have their masks after the loop."""
        return each_kernel(module, _kernel)


def _kernel(k: TileKernel) -> TileKernel:
    names = {v.name for op in walk_ops(k.body) for v in results(op)}
    body = _block(k.body, names)
    return k if body == k.body else replace(k, body=body)


def _block(body: tuple[TileOp, ...], names: set[str]) -> tuple[TileOp, ...]:
    out: list[TileOp] = []
    for op in body:
        out += _loop(op, names) if isinstance(op, ForOp) else [op]
    return tuple(out)


def _loop(loop: ForOp, names: set[str]) -> list[TileOp]:
    """``loop`` without masks that it does not change, and what applies them."""
    loop = replace(loop, body=_block(loop.body, names))
    if loop.chain is not None:
        return [loop]
    read = Counter(v.name for op in walk_ops(loop.body) for v in (*operands(op), *_yields(op)))
    read.update(v.name for v in loop.yields)
    inside = {v.name for op in walk_ops(loop.body) for v in results(op)} | {a.name for a, _ in loop.carried}
    made = {op.result.name: op for op in loop.body if isinstance(op, MapOp)}
    yields, outs, masks = list(loop.yields), list(results(loop)), list[TileOp]()
    for n, (arg, first) in enumerate(loop.carried):
        test = made.get(yields[n].name)
        step = _masked_step(test, arg, made, read, inside)
        if test is None or step is None:
            continue
        kept = outs[n]
        outs[n] = Value(_fresh(kept.name, names), kept.type)
        yields[n] = step
        masks.append(replace(test, result=kept, args=(test.args[0], outs[n], first)))
    if not masks:
        return [loop]
    return [replace(loop, yields=tuple(yields), results=tuple(outs)), *masks]


def _masked_step(
    test: MapOp | None, arg: Value, made: dict[str, MapOp], read: Counter[str], inside: Collection[str]
) -> Value | None:
    """The value that ``test`` chooses where a mask from outside of the loop is true, if nothing else reads ``arg``."""
    if test is None or test.op != "select" or test.args[2] != arg or test.args[0].name in inside:
        return None
    step = made.get(test.args[1].name)
    if step is None or step.result.type != test.result.type or step.args.count(arg) != 1:
        return None
    alone = read[arg.name] == 2 and read[step.result.name] == 1 and read[test.result.name] == 1
    return step.result if alone else None


def _yields(op: TileOp) -> tuple[Value, ...]:
    return op.yields if isinstance(op, ForOp) else ()


def _fresh(name: str, names: set[str]) -> str:
    """A name that no value has, which it then is."""
    found = next(x for n in range(1, len(names) + 2) if (x := f"{name}_all_{n}") not in names)
    names.add(found)
    return found

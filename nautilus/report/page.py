"""The HTML of a report: one file without references to others, which needs no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from nautilus.core.errors import Diagnostic
from nautilus.core.text.words import counted
from nautilus.cost.model import Estimate
from nautilus.cost.roofline import UNITS, Roofline
from nautilus.ma_tile.ir.ops import MemKernel, MemModule
from nautilus.report.history import Change
from nautilus.report.links import Text
from nautilus.report.timeline.picture import SCRIPT, STYLE

_STYLE = """
body{font:14px/1.4 system-ui,sans-serif;margin:1em;color:#222}h2{margin:1.2em 0 .4em}
pre,.t{font:12px/1.35 ui-monospace,monospace}.panes{display:flex;gap:6px;height:75vh}
.pane{flex:1;min-width:0;border:1px solid #ccc;display:flex;flex-direction:column}
.pane h3{margin:0;padding:3px 6px;background:#eee;font-size:13px}.t{overflow:auto;flex:1;white-space:pre}
.t div{padding:0 6px;min-height:1.35em}.t div[data-d]{border-left:3px solid #9bd;cursor:pointer}
.on{background:#ffe9a8}.add{background:#e3f6e3}.del{background:#fbe3e3}.at{color:#777}
table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:2px 8px;text-align:right}
td:first-child,th:first-child{text-align:left}.bar{display:inline-block;height:.8em;background:#69c}
.map{position:relative;height:46px;border:1px solid #999;background:#f6f6f6;margin:4px 0}
.map span{position:absolute;top:0;bottom:0;border-right:1px solid #fff;background:#8bc;overflow:hidden;font-size:11px}
details pre{margin:.3em 0;border:1px solid #ddd;overflow:auto;max-height:60vh}
"""
_SCRIPT = """
for(const e of document.querySelectorAll('[data-d]')){
  const all=()=>document.querySelectorAll('[data-d="'+e.dataset.d+'"]');
  e.onmouseenter=()=>all().forEach(x=>x.classList.add('on'));
  e.onmouseleave=()=>all().forEach(x=>x.classList.remove('on'));
  e.onclick=()=>document.querySelectorAll('.t').forEach(p=>{
    const x=p.querySelector('[data-d="'+e.dataset.d+'"]');
    if(x&&!p.contains(e))p.scrollTop=x.offsetTop-p.offsetTop-40;});}
"""

_TIMELINE = (
    "A prediction for one block that is alone on its multiprocessor: the roles and barriers of the kernel run in the "
    "interpreter, and the cost model says how long each operation takes. The pointer on a part names its operation."
)


def page(
    title: str, texts: Sequence[Text], changes: Sequence[Change], module: MemModule, found: Estimate, roof: Roofline,
    remarks: Iterable[Diagnostic], timelines: Sequence[str], tuning: str,
) -> str:  # fmt: skip
    """The whole file, from the parts that stand on it.

    ``texts``: the panes, from the spec to CUDA C++.  ``changes``: what each pass changed.  ``found``, ``roof``: the
    predicted times and their lower bounds.  ``timelines``, ``tuning``: parts that are HTML already; '' without history.
    """
    said = "".join(f"<pre>{escape(d.text())}</pre>" for d in remarks)
    parts = [
        f"<h1>{escape(title)}</h1>",
        "<p>The pointer on a line marks what belongs to the same statement of the spec; a click scrolls to it.</p>",
        f"<div class=panes>{''.join(map(_pane, texts))}</div>",
        f"<h2>Remarks</h2>{said}" if said else "",
        "<h2>Predicted time</h2>", _times(found), _floors(roof),
        f"<h2>Timeline</h2><p>{_TIMELINE}</p>", *timelines,
        f"<h2>Tuning</h2>{tuning}" if tuning else "",
        "<h2>Shared memory</h2>", *map(_shared, module.kernels),
        "<h2>Register layouts</h2>", *map(_layouts, module.kernels),
        "<h2>Passes</h2>", *map(_change, changes),
    ]  # fmt: skip
    named = f"<meta charset=utf-8><title>{escape(title)}</title>"
    head = f"<!doctype html><html lang=en>{named}<style>{_STYLE}{STYLE}</style>"
    return "\n".join([head, *parts, f"<script>{SCRIPT}{_SCRIPT}</script></html>", ""])


def _pane(t: Text) -> str:
    lines = (
        f"<div data-d={owner}>{escape(line)}</div>" if owner >= 0 else f"<div>{escape(line)}</div>"
        for line, owner in zip(t.lines, t.owners, strict=True)
    )
    return f"<div class=pane id=stage-{t.stage}><h3>{t.stage}</h3><div class=t>{''.join(lines)}</div></div>"


def _times(found: Estimate) -> str:
    rows = []
    for k in found.kernels:
        cells = "".join(f"<td>{1e6 * k.parts.get(p, 0.0):.3g}</td>" for p in UNITS)
        width = round(300 * k.seconds / found.seconds) if found.seconds > 0 else 0
        bar = f"<span class=bar style='width:{width}px'></span>"
        rows.append(f"<tr><td>{escape(k.name)} {bar}</td><td>{1e6 * k.seconds:.4g}</td>{cells}</tr>")
    names = "".join(f"<th>{name}</th>" for name in UNITS.values())
    return f"<table id=times><tr><th>kernel</th><th>us</th>{names}</tr>{''.join(rows)}</table>"


def _floors(roof: Roofline) -> str:
    floors = ", ".join(f"{escape(name)} {1e6 * s:.4g} us" for name, s in roof.floors.items())
    return (
        f"<p id=roofline>Roofline: {roof.share:.0%} of the {escape(roof.bound)} bound (lower bounds: {floors}). "
        f"Binding unit: {escape(roof.unit)}, {roof.unit_share:.0%} of the predicted time.</p>"
    )


def _shared(k: MemKernel) -> str:
    """The bytes of a block of ``k`` as a bar; buffers at the same bytes lie in rows below each other."""
    total = max(1, k.smem_bytes)
    places = [
        (s.name, s.offset, s.stages * s.stage_bytes, f"{s.dtype}, {counted(s.stages, 'stage')}, swizzle {s.swizzle}")
        for s in k.smem
    ]
    places += [(b.name, b.offset, 8 * b.stages, counted(b.stages, "mbarrier")) for b in k.mbars]
    spans = []
    for name, start, size, about in places:
        style = f"left:{100 * start / total:.3f}%;width:{max(0.2, 100 * size / total):.3f}%"
        title = f"{name}: bytes {start} to {start + size}, {about}"
        spans.append(f"<span style='{style}' title='{escape(title, quote=True)}'>{escape(name)}</span>")
    rows = "".join(
        f"<tr><td>{escape(n)}</td><td>{a}</td><td>{z}</td><td>{escape(w)}</td></tr>" for n, a, z, w in places
    )
    table = f"<table><tr><th>place</th><th>from byte</th><th>bytes</th><th>content</th></tr>{rows}</table>"
    return f"<h3>{escape(k.name)}: {k.smem_bytes} bytes</h3><div class=map>{''.join(spans)}</div>{table}"


def _layouts(k: MemKernel) -> str:
    rows = "".join(f"#{escape(name)} = {escape(str(layout))}\n" for name, layout in k.layouts.items())
    return (
        f"<details><summary>{escape(k.name)}: {counted(len(k.layouts), 'layout')}</summary><pre>{rows}</pre></details>"
    )


def _change(c: Change) -> str:
    kinds = {"+": "add", "-": "del", "@": "at"}
    lines = "".join(f"<span class={kinds.get(x[:1], 'same')}>{escape(x)}</span>\n" for x in c.lines)
    size = sum(x[:1] in "+-" for x in c.lines)
    head = f"{c.stage}/{c.name}: {counted(size, 'line')}, {c.milliseconds:.1f} ms"
    return f"<details class=change><summary>{escape(head)}</summary><pre>{lines}</pre></details>"

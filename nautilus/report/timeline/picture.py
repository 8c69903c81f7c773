"""The picture of a timeline in a report: data in JSON, which a script of the page draws, and a table of shares."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape

from nautilus.core.source import Span
from nautilus.report.timeline.slices import KINDS, Timeline

STYLE = """
.time{overflow-x:auto;border:1px solid #ccc}.time svg{display:block;width:100%;height:0}.time .name{font-size:11px}
.elementwise{fill:#8bc}.mma{fill:#c66}.copy{fill:#7a7}.wait{fill:#ddd}.time rect.on{fill:#fc3}
.key{padding:0 .5em;margin-right:.5em}.key.elementwise{background:#8bc}.key.mma{background:#c66}
.key.copy{background:#7a7}.key.wait{background:#ddd}.lanes{display:flex}.lanes .names div{height:22px;font-size:12px}
.lanes .time{flex:1;min-width:0}.lanes .names{padding-right:8px;white-space:nowrap}
"""
#: draws every timeline and adds what the pointer shows; it runs before the script that links statements
SCRIPT = """
for(const box of document.querySelectorAll('.timeline')){
  const t=JSON.parse(box.querySelector('script').textContent);
  const svg=box.querySelector('svg'),ns=svg.namespaceURI;
  svg.setAttribute('viewBox','0 0 '+t.cycles+' '+22*t.tracks.length);
  svg.setAttribute('preserveAspectRatio','none');svg.style.height=22*t.tracks.length+'px';
  for(const [track,start,cycles,kind,name,owner] of t.slices){
    const r=document.createElementNS(ns,'rect');
    r.setAttribute('x',start);r.setAttribute('width',cycles);r.setAttribute('y',22*track+2);r.setAttribute('height',18);
    r.setAttribute('class',t.kinds[kind]);if(owner>=0)r.dataset.d=owner;
    r.onmouseover=()=>{box.querySelector('.name').textContent=
      t.kinds[kind]+', cycles '+start+' to '+(start+cycles)+': '+t.names[name];};
    svg.append(r);}
  box.querySelector('input').oninput=e=>{svg.style.width=100*2**e.target.value+'%';};}
"""


def picture(t: Timeline, owner: Callable[[Span], int]) -> str:
    """The timeline as HTML. ``owner``: the number of the statement of the spec at a place; -1: none."""
    names = dict.fromkeys(s.name for s in t.slices)
    number = {name: n for n, name in enumerate(names)}
    track, kind = ({x: n for n, x in enumerate(xs)} for xs in (t.tracks, KINDS))
    data = {
        "cycles": round(t.cycles) or 1, "tracks": t.tracks, "kinds": list(KINDS), "names": list(names),
        "slices": [
            [
                track[s.track], round(s.start), max(1, round(s.end - s.start)), kind[s.kind], number[s.name],
                owner(s.span),
            ]
            for s in t.slices
        ],
    }  # fmt: skip
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    cut = "" if t.whole else f" The first {len(t.slices)} parts of it are shown."
    keys = "".join(f"<span class='key {k}'>{escape(what)}</span>" for k, what in KINDS.items())
    labels = "".join(f"<div>{escape(name)}</div>" for name in t.tracks)
    return (
        f"<div class=timeline><h3>{escape(t.kernel)}, block {t.block}: {t.cycles:.0f} cycles, "
        f"{1e6 * t.cycles / t.clock:.4g} us at {t.clock / 1e9:.2f} GHz</h3><p>{keys}"
        f"zoom <input type=range min=0 max=8 value=0 step=0.25>{cut}</p>"
        f"<div class=lanes><div class=names>{labels}</div><div class=time><svg></svg></div></div>"
        f"<pre class=name>&nbsp;</pre>{_shares(t)}<script type='application/json'>{text}</script></div>"
    )


def _shares(t: Timeline) -> str:
    """What each track does for which part of the time."""
    rows = []
    for track in t.tracks:
        busy = t.busy(track)
        cells = "".join(f"<td>{busy.get(k, 0.0) / max(t.cycles, 1.0):.0%}</td>" for k in KINDS)
        rows.append(f"<tr><td>{escape(track)}</td>{cells}</tr>")
    heads = "".join(f"<th>{escape(what)}</th>" for what in KINDS.values())
    return f"<table class=shares><tr><th>track</th>{heads}</tr>{''.join(rows)}</table>"

"""The page in a real browser, where there is one: its scripts draw the timelines and link the statements."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.report.test_report import made

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
#: enters the first line of a statement with the pointer, and writes down what the scripts did
PROBE = """
<script>window.onerror=m=>{document.title='error: '+m;};</script>"""
ENTER = """
<script>
const line=document.querySelector('#stage-spec [data-d]');line.onmouseenter();
const on=[...document.querySelectorAll('.on')].map(e=>e.closest('.pane,.timeline').className);
const zoom=document.querySelector('.timeline input');zoom.value=2;zoom.oninput({target:zoom});
document.body.dataset.found=JSON.stringify({on:on.length,timeline:on.includes('timeline'),
  rects:document.querySelectorAll('.timeline rect').length,width:document.querySelector('.timeline svg').style.width,
  outside:performance.getEntriesByType('resource').length});
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="needs a browser")
def test_the_scripts_of_the_page(tmp_path: Path) -> None:
    assert BROWSER is not None
    page = tmp_path / "x.html"
    page.write_text(made().replace("<meta charset=utf-8>", f"<meta charset=utf-8>{PROBE}") + ENTER)
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom",
         page.as_uri()], capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "<title>error" not in done.stdout, done.stdout[:500]
    match = re.search(r'data-found="([^"]*)"', done.stdout)
    assert match is not None, done.stderr[-2000:]
    found = json.loads(match[1].replace("&quot;", '"'))
    slices = sum(len(json.loads(t)["slices"]) for t in re.findall(r"application/json'>(.*?)</script>", made()))
    assert found["rects"] == slices > 0 and found["width"] == "400%"
    assert found["on"] > 4 and found["timeline"] and found["outside"] == 0

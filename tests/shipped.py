"""The shipped specs, for tests that go over all of them, and the specs of other folders, for tests of their own."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent
FAMILIES = ("attention", "matmul", "rowwise")
SPECS = [p for name in FAMILIES for p in sorted((ROOT / "specs" / name).glob("*.naut"))]
FOLDERS = tuple(ROOT / "specs" / name for name in ("gallery", "models", "serving"))  # the page of each lists its specs
MORE = [p for folder in FOLDERS for p in sorted(folder.rglob("*.naut"))]
IDS = [p.stem for p in SPECS]

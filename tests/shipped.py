"""The shipped specs, for tests that go over all of them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent
SPECS = sorted((ROOT / "specs").glob("*/*.naut"))
IDS = [p.stem for p in SPECS]

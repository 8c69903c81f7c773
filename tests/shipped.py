"""The shipped specs, for tests that go over all of them, and the specs of the gallery, for tests of their own."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent
SPECS = sorted((ROOT / "specs").glob("*/*.naut"))
GALLERY = ROOT / "specs" / "gallery"
MORE = sorted(GALLERY.rglob("*.naut"))
IDS = [p.stem for p in SPECS]

"""Every test has databases of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tune import toy


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "own" / "tuning.jsonl"
    monkeypatch.setenv("NAUTILUS_DB", str(path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    return path


@pytest.fixture
def matmul(tmp_path: Path) -> Path:
    path = tmp_path / "mm.naut"
    path.write_text(toy.MATMUL)
    return path

"""``python -m nautilus`` is ``nautilusc``."""

from nautilus.cli.main import entry

if __name__ == "__main__":
    entry()

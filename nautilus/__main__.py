"""``python -m nautilus`` is ``nautilusc``."""

import gc


def entry() -> None:
    """The entry point of the console script."""
    gc.set_threshold(500_000, 20)  # modules and IRs have no cycles: hundreds of collections free nothing
    from nautilus.cli.main import entry as run

    run()


if __name__ == "__main__":
    entry()

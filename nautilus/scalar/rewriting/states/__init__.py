"""Matrix states in chunks of steps, for ``chunk-matrix-states``."""

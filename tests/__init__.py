"""Tests of the package.  The arrays of interpreters are small: more threads of the matrix library only wait."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

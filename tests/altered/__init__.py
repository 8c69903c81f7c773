"""Passes on altered programs: each program of a test of a pass, changed in one place."""

"""Validation of a compilation: inputs, error bounds, both sides of every step, and the report."""

"""Bounds of recurrences: over all their steps, or of a single one."""

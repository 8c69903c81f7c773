"""Blocks of one kernel in clusters."""

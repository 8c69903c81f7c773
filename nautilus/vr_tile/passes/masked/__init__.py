"""Passes for dots with a mask."""

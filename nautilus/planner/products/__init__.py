"""Shapes of tiles of matrix products."""

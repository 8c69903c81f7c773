"""Passes that change the axes of tiles."""

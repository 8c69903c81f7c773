"""Scans in the physical interpreter."""

"""Passes as data: what runs, in which order, and who watches."""

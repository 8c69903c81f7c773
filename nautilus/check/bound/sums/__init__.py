"""Sums of which some terms are evaluated, and how many terms a condition admits."""

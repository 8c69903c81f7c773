"""Errors of sums: on matrix units, in any order, and where some of the terms are evaluated."""

"""Errors of single operations: how alike they are, and which form of a function has them."""

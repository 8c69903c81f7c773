"""The printed text of accesses to global memory."""

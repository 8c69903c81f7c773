"""The predicted timeline of a block: what its roles, copies and matrix units do when, and who waits for whom."""

"""Products for each position of contiguous memory: lanes have the positions, and threads what operands share."""

"""The text of a kernel: the statements of the spec as comments and names, and line breaks."""

"""How a kernel reads: the statements of the spec in it, and where its lines end."""

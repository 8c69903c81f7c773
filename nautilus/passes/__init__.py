"""Stages and passes as data, the pass manager, and its instruments."""

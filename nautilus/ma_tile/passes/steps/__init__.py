"""Passes over loops of steps, whose iterations depend on each other."""

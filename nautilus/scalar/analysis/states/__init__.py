"""The states of recurrences: what a step makes of the state before it."""

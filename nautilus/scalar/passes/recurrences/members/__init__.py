"""Passes that choose which definitions are computed in the steps of which recurrence."""

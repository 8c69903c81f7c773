"""Tuning: the space of schedules, a cost model, the search, and the database of what it found."""

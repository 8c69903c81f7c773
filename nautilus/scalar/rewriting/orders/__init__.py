"""Orders of rows by keys in memory, for ``sort-terms``."""

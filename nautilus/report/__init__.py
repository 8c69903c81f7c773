"""``--report``: one HTML file that shows each statement of a spec after each pass."""

"""``--report``: one HTML file that shows what became of each statement of a spec, pass by pass."""

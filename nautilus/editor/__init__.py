"""What editors ask of a spec: its layout."""

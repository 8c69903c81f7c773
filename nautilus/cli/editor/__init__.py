"""Commands for editors and for the layout of specs."""

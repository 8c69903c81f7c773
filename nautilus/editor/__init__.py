"""What editors show of a spec: its layout, messages, the meaning of its names; and the language server."""

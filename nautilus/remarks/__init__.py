"""Remarks: what keeps a spec from being fast, with its line, the reason and what to write instead."""

"""Peers: which call of a library computes what a Spec says, found by matching its algebra.

Nothing here is part of the compiler, which knows no operator; libraries have names, so this folder has
them too.  A match only proposes a call; the check of its result against the reference
(:mod:`nautilus.bench.verify`) is what makes it a peer.
"""

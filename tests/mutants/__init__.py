"""Mutation testing of synchronisation: every mutant of a kernel's MA-tile IR must be noticed.

A mutant has one op deleted, or weakened in one field: a wait for fewer groups, the other parity, another stage or
mbarrier, another number of arrivals, bytes or threads, a smaller scope, a missing fence.  ``mutations`` derives the
mutants from the declarations of the ops, ``programs`` has the kernels (the shipped specs at small sizes, and schedules
that they do not use), and ``judge`` runs the verifier and the interpreter on a mutant.
"""

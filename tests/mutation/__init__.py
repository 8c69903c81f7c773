"""Mutation testing of the compiler's own code: a changed line of a pass, the emitter or the checker fails a test.

``sites`` lists the mutants that the operators of cosmic-ray make, ``reach`` records which tests reach which lines,
``trial`` runs the tests near a mutant in a forked process, and ``campaign`` draws a sample and keeps the results.
No module of this folder imports the compiler, so that a forked process imports the mutant.
"""

"""Results of trials of plans that later trials use again.

Trials differ in the plan of a few kernels.  ``divided`` is a module as one module for each of its kernels, which is
the same object wherever the kernel and all that it depends on are equal: a step that changes each kernel by itself
then runs once for each different kernel, not once for each trial.
"""

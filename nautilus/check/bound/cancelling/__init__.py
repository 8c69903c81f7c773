"""Outputs whose largest errors are without a bound, because terms cancel where a function has no bounded derivative.

The relative error of ``1 / (x + y + z)`` is that of the sum, which is as large as the terms are in comparison with it.
The more elements an output has, the closer to 0 is the least of its sums, and a norm over all elements is that of the
few largest errors.  A figure from sampled elements then says nothing about all of them.

1. :mod:`.sites` finds by the structure of a program where a function may meet such a value: under a root, in a divisor,
   in a logarithm, close to a comparison that decides between two different values.
2. :mod:`.reach` evaluates these values at sampled elements and decides whether one of all elements may come so close
   to the singular point that it decides about the norm.
3. :mod:`.left_out` then states the figure without the largest errors: without a share of the elements, or, for an
   output of few elements, on most inputs.  Such a figure is that of the typical element, whatever the size.

:mod:`.tails` finds by the distribution of the sampled errors where a norm is that of a few elements, whatever the
structure of a program is.

Elements that have such a value in common, as all elements of a row have the divisor of the row, cancel together.  What
is left out is then a share of these groups, or of the inputs where there are few groups.
"""

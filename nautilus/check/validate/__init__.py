"""Translation validation: whether the module after a pass refines the module before it.

The validator takes both modules and decides by itself.  It imports the definitions of the IRs and of expressions, and
nothing of the passes: no simplifier, no analysis, no interpreter.

Method.  Both modules run on the same inputs, on a number domain in which equality is decided rather than measured
(``numbers``).  A number is a real and residues in two prime fields (``residues``):

* the real decides comparisons, maxima, and where a value is inf or NaN;
* the residues decide equality.  A polynomial identity that fails is refuted by a random point but for a chance of its
  degree over 2^31 (Schwartz 1980, Zippel 1979).  ``exp`` is a map from the second field to the first that takes sums to
  products, and functions without rules are random functions (Mirage, arXiv 2405.05751).

So sums in another order, rescaled sums of exponentials, folded constants and products by a reciprocal have equal
residues, while a wrong sign, index, mask, bound or constant has not.  There is no tolerance, so a small
fault shows.  What has no rule in the field is *tested* on the reals alone, and the verdict says so.

Domains.  Points with zeros of both signs, equal elements, and inf or NaN that the program makes are run besides random
ones, so a rewrite that is an identity but for a point (``x / x = 1``) is refuted there (``points``; ``identities`` for
expressions, where inf, NaN, huge and tiny arguments are added).

Coverage.  Both modules run whole, at sizes that no tile divides, so each iteration of a partition or a split shows:
one that is left out or that runs twice changes a sum.  Two iterations that write one element, and an access outside a
buffer, are errors.  ``index_sets`` decides the same at the declared sizes, with sets of integers.

A proof holds for the sizes that ran.  Proofs of index sets hold for the declared sizes.

isl decides the index sets and is loaded only then: ``pip install 'nautilusc[check]'``.

| file | content |
| --- | --- |
| residues | the two fields |
| numbers | reals with residues; constants |
| meanings | functions on these numbers |
| memory | buffers, reductions, contractions |
| expressions | expressions at all points of a space at once |
| scalar_run, tile_run | Scalar programs and VR-tile modules |
| points | the inputs |
| refinement | the comparison of two modules |
| sets | iterations of loops and tiles of blocks at the declared sizes, by isl |
| ranges | whether what is rounded to f16 is finite there, by intervals with directed rounding |
| identities | the equality of two expressions, and its domain |
| verdict | proved, tested, not decided, refuted |
"""

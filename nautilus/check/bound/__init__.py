"""The error bound that the compiler states for a kernel.

What is bounded.  The error of an output is ``|out - ref| / |ref|`` in Frobenius norms, and ``ref`` is the Spec in
float64.  The stated figure is for standard normal inputs at the declared sizes.  On other inputs the bound is larger
where the result is smaller than the terms that it is computed from; it is then relative to these terms
(:mod:`nautilus.check.reference`).  Integers and bools have no error, but where computed floats tie.

The roundings.  They are those of the program that the compiler has made (:mod:`nautilus.check.bound.program`): each
``narrow`` that it inserted, each cast in the spec, each operation in f32 or f64, each sum, and the store.  ``u`` is the
unit roundoff of the type in question.

* An operation has the ulps that its record in ``core.functions`` states for the call and, under ``--precision fast``,
  for its approximations.  A product with a power of two, a comparison, a choice and a sign are exact.
* The logarithm of the special-function unit has a larger error where its result is small.  Code has it only where a
  reduction or a rounding to 16 bits hides it (:mod:`nautilus.check.bound.roundings.approximations`).
* A function that scales its argument (``exp`` becomes ``exp2``) has, besides, an error of ``u`` times the argument, and
  of the term of the argument with fewer axes, because a pass distributes the constant over both and fuses the product
  of the other one (:mod:`nautilus.check.bound.roundings.exponents`).  Where the terms are above 2^24 it is at most 0.51
  of the argument, because the scale of such a row is a power of two: equal terms cancel.
* A number of the spec that its type does not have, such as 0.1 or -1e30, has one error wherever it is written.
* A sigmoid close to 1 has fewer ulps than others, because the power in its sum is small there.
* ``tanh`` and ``erf`` have the error of the hardware's approximation where only outputs of at most 16 bits depend on
  them (``vr_tile.passes.hardware_math``).
* ``narrow`` to a type has its ``u``, and half of the least denormal at least: a factor that is much smaller than the
  largest one of its row loses bits in f16.
* A sum is a chain of additions, each with an error of ``u`` times the partial sum.  Its length is the number of terms,
  for tensor cores one for 32 bytes of terms, and for sums without products a 32nd of it, at least 4 and the levels of
  the tree that adds 32 lanes.  The partial sums are those of the terms in order, at eight places.  Where the schedule
  cuts a sum without products into parts, the chains are those of a part and of the sum of all parts, and errors of
  chains that run at the same time average out.  They do too where the lanes of a warp share the terms of a sum: of
  everything, or of a row of at least 1024 neighbours without matrix units.  Rows whose sums are added are a sum of
  sums.  A tensor core cuts
  off instead of rounding (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021), so these
  errors point towards zero and grow with the number of terms: ``u`` of each partial sum, where 0.55 was measured (sums
  of 64 to 4096 products of 16-bit and of tf32 operands, sm_90a).  A sum of products of 8-bit floats loses 2^-13 of the
  partial sum with each term, in chains of 128 terms, or in one of 256 (``ma_tile.ir.async_ops``).  Sums of equal or
  ordered terms, which only ``check`` draws, have a quarter of ``u`` more for each term, and four neighbours among such
  elements have one error.
* No tensor core computes the product of a matrix and a vector, or of two vectors, unless another one follows it.
* Products that are integers which f32 has are exact, and so is a sum of terms of which it has all sums.
* A product of f32 matrices may be computed in parts of tf32, unless the schedule or the precision forbids it
  (``core.functions.parts``).  A term then has an error of 8 ``u``, and 32 terms at a time are summed in at most 24
  additions that cut off their results, so that a short sum has 12 to 24 ``u`` towards zero.  The model takes 3.5 ``u``
  of each term, with random signs, and where all errors are alike, 12 ``u`` of the sum, towards zero.  Three parts of
  bf16 stay below that: the sum of one step of a loop is at full size in at most four additions that cut off.
* A cast that the spec has is a rounding in the maths, and both sides have it.  What is close to a tie may go either
  way: where the error before the cast decides, it does, and the elements within 4 units of f32 of a tie do besides (at
  least one): one in 2048 of f16, and one in 16384 of bf16.  Where
  ``defer-roundings`` rounds another number instead, the result has both roundings as errors.
* A step, such as ``floor`` of a computed number, may take the value on either side of a tie.  One element in 1024 of
  that number (at least one) is taken to be at one, and of the stated figure as many as errors move across one on random
  inputs, at least one of all elements: the effect is the difference of the results just above the tie and
  just below it, which is small where the result is continuous (:mod:`nautilus.check.bound.cancelling.ties`).  Elements
  that are at ties over the reals, as logarithms of positions are, go to one side together.
* Results below the least normal number of f32 may become 0.

The model.  Roundings are independent random errors (Higham, Mary, "A new approach to probabilistic rounding error
analysis", 2019), so the bound of a sum grows with the square root of the number of terms.  Their first-order effect is
not derived by formulas but evaluated: the program runs in float64 with an error at every rounding, as in Monte Carlo
arithmetic (Parker, 1997), and the change of the result is its norm-wise sensitivity, with all correlations and all
cancellation.  An error is uniform in [-2 u, 2 u], which is three times the root mean square of a rounding error; the
bound is the largest of three such runs.  In two further runs, all elements of a rounding have one relative error of
1.25 u: equal inputs are rounded in one direction, and negated ones in the opposite one.  Roundings of different numbers
have both signs, so that this error is the part that the roundings of the evaluated elements have in common, and all of
it where they do not vary (:mod:`nautilus.check.bound.roundings.alike`).  Equal numbers have one error wherever the same
operation makes them: in all definitions, and on both sides of a comparison.  One of these two has the
errors that cancel least.  Where many elements have a term in common, as in ``x - mean``, the elements of a binade have
one rounding error: the term is rounded to their spacing.  Where a tensor core adds one sum to another in its
accumulator, what it cuts off the second sum has the sign of the first one.  A unit roundoff of the output is added,
unless its type is the one in which it is computed.  Where an output has many elements, its error varies little between
inputs, and the bound holds with a margin of about three.  A single number has an error that is normally distributed,
six standard deviations of which are allowed: the error of n evaluated elements is multiplied by 1 + 1 / sqrt(n), where
their roundings have independent errors.  Few elements are evaluated on six inputs together, and on given inputs in
twelve random runs instead of three.  Where fewer than four elements or rows have most of the error of a sample, as in a
softmax of large logits, it is found again at 4096 elements, or where the output has fewer, on up to 32 inputs, of which
the largest error counts.  Where few elements of a recurrence have most of the norm, as paths of
log-normal size do, it is found again at up to 1024 elements and on 6 to 32 inputs, over all steps under each choice of
independent errors, and the largest figure of one input counts.  Rows of such
an output, and the output on other inputs, have their norm in other few elements, with other relative errors: what is
above the stated bound is judged by the errors on its inputs.  An output of up to three numbers that may all be close to
0, as a sum of terms of both signs is, has the figure on most inputs; ``check`` and ``bench`` judge it by the errors on
theirs.  So has an output of a recurrence of which one element of either sign has the norm.

Values that cancel.  Where terms may cancel under a root, in a divisor or in a logarithm, as in ``1 / (x + y + z)``, or
decide a comparison between two different values, the largest errors have no bound, and a norm is that of a few
elements.  Whether one of all elements comes that close is decided by the distribution of the sampled distances and the
number of elements, not by the largest sampled error.  The stated figure is then that without a share of the largest
errors and values, or on most inputs (:mod:`nautilus.check.bound.cancelling`).  It holds at any size.  So it is where an
imprecise value is divided by a precise one that is 0 where it is, as in ``(exp(x) - 1) / x`` of a computed
``x``.  ``check``, and ``bench`` on sampled rows, compare each element with its own error under the roundings on its
inputs.

The sizes.  The stated figure is evaluated at sampled elements of the outputs, at fewer of them and on more inputs where
sums are long.  Sums longer than the budget allows even then are evaluated on evenly spaced terms, and on those at the
sampled indices; their own errors are those of the full length, and so is their size
(:mod:`nautilus.check.bound.sums.short_sums`).  Where values cancel the more, the more terms there are, the figure is
extrapolated with a power of the number of terms that still shorter sums show, which is a half or one.  A chain that
amplifies errors to a twentieth of its values is evaluated with four times as many points.  Where a typed intermediate
rounds few elements another way, the figure is that of the largest error on three inputs.
Where a condition admits few of the terms, those of a segment or of a key, none of the evaluated terms may be one of an
evaluated element.  The figure is then that of dense rows, if that is larger, and the chain of a sum is eight times as
long as an average row, or 1024 (:mod:`nautilus.check.bound.sums.admitted`).  A size that is known only at launch counts
as 1024, or its bound.

Decisions.  A comparison of numbers that positions alone decide about is exact where these are not equal.  Where they
are, in rows that depend on their own positions, the figure is that without ties, and the statement says so
(:mod:`nautilus.check.bound.cancelling.positions`).  Where an output of floats depends on integers or bools about which
comparisons of computed floats decide, as the share of right ``argmax`` does, the figure is that without ties too
(:mod:`nautilus.check.bound.cancelling.decisions`).  ``check`` and ``bench`` compare each element with its own error.

Recurrences.  The error of a step is amplified by the steps after it, which is evaluated over all steps.  Where it grows
so much that a bound would excuse wrong results, the bound is that of a single step from the state that the result shows
before it, or that of the first steps, or there is none (:mod:`nautilus.check.bound.recurrences.recurrent`).  A running
sum relative to its largest term is a recurrence too (``recur-scans``), with the independent errors of a sum.  Equal
numbers have one error in all steps, as coefficients and states that stay have; a number of the spec has the error of
the nearest one of its type (:mod:`nautilus.check.bound.roundings.in_steps`).  Linear steps have the factors with which
they are combined (:mod:`nautilus.check.bound.recurrences.factored`), and states that need each other the roundings of
powers of their matrix (:mod:`nautilus.check.bound.recurrences.combined`).

Out of range.  An f32 result above 2^120 (2^8 below the largest number, because the order of a sum is free and scaled
values occur) is taken as infinite, and so is a narrowed factor that leaves its type; one that is too small for its type
is 0.  Where that changes which elements of the result are finite, as 0 times inf does, the inputs are outside the
stated range.
"""

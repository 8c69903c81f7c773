"""The fuzzers: each makes a case from a seed and judges it."""

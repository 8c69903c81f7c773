"""Outputs for frameworks: operators of PyTorch, functions of JAX and of apache-tvm-ffi."""

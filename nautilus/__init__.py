"""nautilusc: from mathematics to a CUDA kernel, every step printed and every step checked."""

__version__ = "0.1.0"

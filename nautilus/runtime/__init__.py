"""NVRTC, the driver and the device; nothing here is imported unless a job needs it."""

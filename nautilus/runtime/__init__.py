"""NVRTC, the driver and the device. Modules of this package are imported only when a command needs them."""

"""The Python interface: specs as functions on arrays of the device."""

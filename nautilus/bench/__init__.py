"""``nautilusc bench``: the kernel and every installed peer, timed and checked in one run."""

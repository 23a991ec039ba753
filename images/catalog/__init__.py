"""Known builds, recipes and workloads: data, and the module that hashes it."""

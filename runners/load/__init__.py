"""The load generator: a process of its own that sends prepared bytes, stamps what comes back, and judges nothing."""

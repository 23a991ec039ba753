"""What goes over the wire between controller, runners and clients. Imports nothing of ours."""

PROTOCOL_VERSION = 1
"""Grows with every change of a message: unknown fields are refused, so an older side would not take a new one."""

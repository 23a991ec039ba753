"""A build becomes a listening server."""

"""REST, /api/v1. ``agent`` is the runner protocol; everything else is for people and programs."""

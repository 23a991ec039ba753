"""Decisions, pure: no I/O, no SQL, no FastAPI; times come in as arguments."""

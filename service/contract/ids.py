"""Identifiers: a prefix that says what it is, and 64 random bits."""

import secrets
from typing import Literal

Prefix = Literal[
    "bld",
    "rcp",
    "wld",
    "req",
    "job",
    "att",
    "lau",
    "rep",
    "run",
    "slt",
    "tok",
    "enr",
    "art",
    "boot",
    "lrq",
    "bis",
    "stp",
    "evl",
]


def new_id(prefix: Prefix) -> str:
    """Return a fresh id such as ``job_9f86d081884c7d65``; unique for all practical purposes (64 random bits)."""
    return f"{prefix}_{secrets.token_hex(8)}"

"""The agent on a GPU node: it leases attempts from a controller, makes launches, and hands in what it measured.

Rooms: cli · settings · agent (slots and leases) · lease (renewal) · attempt (one attempt as named steps) · journal,
spool and leftovers (what survives a death) · controller (typed client) · delivery · logstream · launch (a build
becomes a listening server) · load (the ruler's client) · evaluate (gsm8k through lm-eval).
"""

AGENT_VERSION = "0.1.0"

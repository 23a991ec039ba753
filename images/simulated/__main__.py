"""`python -m images.simulated serve|truth ARGS`."""

import sys

from images.simulated import server, truth

USAGE = "usage: python -m images.simulated {serve|truth} ARGS (serve --help, truth --help)"


def main(argv: list[str]) -> int:
    """Run the named command and return its exit status: 0 done, 1 failed, 2 wrong use or a bad profile."""
    if argv[:1] == ["serve"]:
        return server.main(argv[1:])
    if argv[:1] == ["truth"]:
        return truth.main(argv[1:])
    print(USAGE, file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

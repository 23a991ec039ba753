"""``python -m images.catalog simulated|vllm-cpu``: the builds as TOML, for ``backslide builds register``."""

import argparse
from pathlib import Path
from typing import Any

from images.catalog import builds


def main() -> None:
    """Print the builds of one kind, with the hash of what each is."""
    parser = argparse.ArgumentParser(prog="python -m images.catalog", description=__doc__)
    parser.add_argument("kind", choices=["simulated", "vllm-cpu"])
    parser.add_argument("--profiles", type=Path, default=builds.PROFILES, help="directory of simulated profiles")
    options = parser.parse_args()
    found = builds.simulated(options.profiles) if options.kind == "simulated" else builds.wheels()
    print("\n\n".join(_toml(build) for build in found))


def _toml(build: dict[str, Any]) -> str:
    source = ", ".join(f'{key} = "{value}"' for key, value in build["source"].items())
    return f'[[builds]]\nname = "{build["name"]}"\nversion = "{build["version"]}"\nsource = {{ {source} }}'


if __name__ == "__main__":
    main()

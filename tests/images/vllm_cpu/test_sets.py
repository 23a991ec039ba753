"""The wheel sets in the source, and the tool that makes them."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

from runners.launch.wheel_sets import PackagedLibrary, SystemLibrary, read_set

SETS = Path(__file__).parents[3] / "images" / "vllm-cpu"
NAMES = sorted(path.stem for path in SETS.glob("*.toml"))


@pytest.fixture(scope="module")
def make_set() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_set", SETS / "make_set.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pins(name: str) -> dict[str, str]:
    return dict(re.findall(r"(?m)^([a-z0-9][a-z0-9-]*)==(\S+)", (SETS / f"{name}.txt").read_text()))


def test_the_two_ends_of_the_lineup_are_there() -> None:
    assert {"0.18.0", "0.24.0"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_set_pins_its_own_vllm_and_plain_torch_without_what_fails_to_load(name: str) -> None:
    pinned = pins(name)
    assert pinned["vllm-cpu"] == name
    assert "+" not in pinned["torch"]
    assert not {"triton", "torchaudio", "vllm"} & set(pinned)
    assert read_set(SETS, name).packages == len(pinned)
    assert "://" not in (SETS / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_requirement_of_the_wheel_is_met_by_the_pins(name: str) -> None:
    pinned = pins(name)
    lines = [line for line in (SETS / f"{name}.in").read_text().splitlines() if not line.startswith("#")]
    required = [Requirement(line) for line in lines]
    assert required
    for one in required:
        if one.name == "torchaudio" or (one.marker is not None and not one.marker.evaluate(PLATFORM)):
            continue
        assert one.specifier.contains(pinned[one.name], prereleases=True), one


PLATFORM = {
    "python_version": "3.11",
    "python_full_version": "3.11.0",
    "platform_machine": "x86_64",
    "platform_system": "Linux",
    "sys_platform": "linux",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_sets_data_knows_its_version_and_stays_on_this_machine(name: str) -> None:
    wheel_set = read_set(SETS, name)
    assert wheel_set.distribution.version == f"{name}+cpu"
    assert wheel_set.version_answer.fullmatch(name)
    assert not wheel_set.version_answer.fullmatch(name + "1")
    assert wheel_set.environment["HF_HUB_OFFLINE"] == "1"
    assert wheel_set.environment["VLLM_HOST_IP"] == "127.0.0.1"
    assert [step.says for step in wheel_set.startup if step.pattern.search("INFO:     Application startup complete.")]


def test_the_older_release_is_given_its_two_preloads_in_order() -> None:
    assert read_set(SETS, "0.18.0").preloads == (
        SystemLibrary("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
        PackagedLibrary("lib/libiomp5.so"),
    )
    assert "intel-openmp" in pins("0.18.0")
    assert read_set(SETS, "0.24.0").preloads == ()


def test_metadata_becomes_plain_requirements(make_set: ModuleType) -> None:
    metadata = "\n".join(
        [
            "Name: vllm-cpu",
            'Requires-Dist: torch==2.10.0+cpu; platform_machine == "x86_64"',
            "Requires-Dist: Typing_Extensions>=4.10",
            "Requires-Dist: protobuf!=6.30.*,>=5.29.6",
            'Requires-Dist: pandas; extra == "bench"',
            'Requires-Dist: scipy; python_version > "3" and extra == "audio"',
            "Requires-Dist: fastapi[standard]>=0.115.0",
            "Requires-Dist: Typing_Extensions>=4.10",
            "",
            "Requires-Dist: in-the-text",
        ]
    )
    assert make_set.plain_requirements(metadata) == [
        "fastapi[standard]>=0.115.0",
        "protobuf!=6.30.*,>=5.29.6",
        'torch==2.10.0; platform_machine == "x86_64"',
        "typing-extensions>=4.10",
    ]

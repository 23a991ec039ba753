"""What a profile may say, and what is said about one that can't be used."""

import hashlib
from pathlib import Path

import pytest

from images.simulated.profile import ProfileError, load_profile
from images.simulated.steptime import Noise, attention_factor, step_ms
from tests.images.simulated.engine_process import CATALOG, FAST

PUBLISHED_MS = {"0.18.0": 19.9, "0.19.1": 29.2, "0.22.0": 31.6}
RELEASES = [
    *("0.18.0", "0.18.1", "0.19.0", "0.19.1", "0.20.0", "0.20.1"),
    *("0.20.2", "0.21.0", "0.22.0", "0.22.1", "0.23.0", "0.24.0"),
]


def _write(directory: Path, text: str) -> Path:
    path = directory / "build.toml"
    path.write_text(text)
    return path


def test_the_catalog_has_every_release_from_0_18_0_to_0_24_0() -> None:
    found = {load_profile(path).version: path.stem for path in CATALOG.glob("*.toml")}
    assert found == {version: f"v{version}" for version in RELEASES}


@pytest.mark.parametrize("version", RELEASES)
def test_a_catalog_profile_takes_the_published_time_at_16_times_51k_tokens(version: str) -> None:
    published = PUBLISHED_MS["0.18.0" if version < "0.19" else "0.19.1" if version < "0.22" else "0.22.0"]
    profile = load_profile(CATALOG / f"v{version}.toml")
    assert step_ms(profile, 16 * 51_000, 0) == pytest.approx(published, abs=0.06)
    assert profile.kernel == ("non_persistent" if version < "0.19" else "persistent")


@pytest.mark.parametrize("version", RELEASES)
def test_a_catalog_profile_says_what_is_published_and_what_is_not(version: str) -> None:
    text = (CATALOG / f"v{version}.toml").read_text()
    assert text.startswith("# A simulated build")
    assert "45943" in text
    assert "Derived" in text


@pytest.mark.parametrize(
    ("context", "factor"),
    [(0, 0.92), (150_000, 0.92), (175_000, 0.96), (200_000, 1.0), (400_000, 1.0), (600_000, 1.24), (800_000, 1.48)],
)
def test_the_persistent_kernel_is_faster_at_little_context_and_slower_at_much(context: int, factor: float) -> None:
    assert attention_factor("persistent", context) == pytest.approx(factor)
    assert attention_factor("persistent", 10**7) == 1.48
    assert attention_factor("non_persistent", context) == 1.0


def test_prefill_adds_to_a_step_and_the_factor_scales_all_of_it(tmp_path: Path) -> None:
    plain = load_profile(_write(tmp_path, FAST))
    faster = load_profile(_write(tmp_path, FAST + "step_factor = 0.88\n"))
    assert step_ms(plain, 0, 8_000) == pytest.approx(1.0 + 2.0)
    assert step_ms(faster, 500_000, 8_000) == pytest.approx(0.88 * step_ms(plain, 500_000, 8_000))


def test_the_same_seed_gives_the_same_launch_effect_and_the_same_noise() -> None:
    one, two, other = Noise(0.006, 0.01, 5), Noise(0.006, 0.01, 5), Noise(0.006, 0.01, 6)
    first = [one.next_factor() for _ in range(2_000)]
    assert one.launch_effect == two.launch_effect != other.launch_effect
    assert first == [two.next_factor() for _ in range(2_000)]
    assert first[:100] != [other.next_factor() for _ in range(100)]
    assert Noise(0.0, 0.0, 5).launch_effect == Noise(0.0, 0.0, 5).next_factor() == 1.0


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('version = "0.18.0"', "version = 18", "version"),
        ('kernel = "non_persistent"', 'kernel = "fast"', "kernel"),
        ("base_ms = 1.0", "base_ms = -1", "base_ms"),
        ("base_ms = 1.0", "base_ms = nan", "base_ms"),
        ("base_ms = 1.0", "", "base_ms"),
        ("layers = 61", "layers = 61.5", "layers"),
        ("layers = 61", "layers = true", "layers"),
        ("start_s = 0.0", "start_s = 0.0\nspeed = 2", "speed"),
        ("start_s = 0.0", "start_s = 0.0\nfaults = 1", "faults"),
        ("start_s = 0.0", "start_s = 0.0\n[start_failure]\nmessage = 'x'", "start_failure.after_s"),
        ("start_s = 0.0", "start_s = 0.0\n[faults.explode]\nevery = 1", "faults.explode"),
        ("start_s = 0.0", "start_s = 0.0\n[faults.stall]\nseconds = 1", "faults.stall.every"),
        ("start_s = 0.0", "start_s = 0.0\n[faults.stall]\nevery = 1\nat_request = 2", "faults.stall.every"),
        ("start_s = 0.0", "start_s = 0.0\n[faults.stall]\nevery = 1\nhow = 2", "faults.stall.how"),
        ("start_s = 0.0", "start_s = 0.0\n[faults.stall]\nevery = 0", "faults.stall.every"),
    ],
)
def test_a_bad_profile_is_refused_with_file_and_key(tmp_path: Path, old: str, new: str, key: str) -> None:
    assert old in FAST
    path = _write(tmp_path, FAST.replace(old, new))
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    assert str(path) in str(caught.value)
    assert f"'{key}'" in str(caught.value)


def test_a_file_that_is_not_toml_or_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"build\.toml: is not TOML"):
        load_profile(_write(tmp_path, "version = "))
    with pytest.raises(ProfileError, match=r"none\.toml: cannot be read"):
        load_profile(tmp_path / "none.toml")


def test_a_profile_is_refused_when_its_bytes_are_not_the_expected_ones(tmp_path: Path) -> None:
    path = _write(tmp_path, FAST)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert load_profile(path, digest).version == "0.18.0"
    path.write_text(FAST + "# changed\n")
    with pytest.raises(ProfileError, match="the profile was changed"):
        load_profile(path, digest)

"""Fixtures every test may use: the shared real data, found in one place, and a clean environment."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every run, however busy the machine; HYPOTHESIS_PROFILE=default looks for new ones.
settings.register_profile("seeded", derandomize=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "seeded"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets: $BERTKIT_SHARED_DATA, by default ../shared/data beside the checkout."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("BERTKIT_SHARED_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"shared data is absent ({folder}); set BERTKIT_SHARED_DATA")
    return folder


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on how it was started."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "BERTKIT_CACHE"):
        monkeypatch.delenv(name, raising=False)

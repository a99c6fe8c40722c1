"""The process from which the tests of this folder fork those that they kill."""

from collections.abc import Iterator

import pytest
from processes import Forge


@pytest.fixture(scope="session")
def forge() -> Iterator[Forge]:
    forge = Forge()
    try:
        yield forge
    finally:
        forge.close()

"""Fixtures of the tests of actions."""

import pytest

from service.actions.context import Context
from tests.workshop import RunnerLife, Workshop


@pytest.fixture
def workshop(ctx: Context) -> Workshop:
    """A stocked controller on each kind of database."""
    shop = Workshop(ctx)
    shop.stock()
    return shop


@pytest.fixture
def runner(workshop: Workshop) -> RunnerLife:
    """A runner with two slots."""
    return workshop.runner()

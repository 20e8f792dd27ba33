"""A workspace of a gateway, as Pydantic AI's users have it."""

import os

import pytest
from pydantic_ai_backends.workspaces import SandboxdWorkspace


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def sandbox():
    """The client, with one connection pool as its documentation advises."""
    async with SandboxdWorkspace(
        service_url=os.environ["BERTH_TEST_URL"], token=os.environ["BERTH_TEST_TOKEN"]
    ) as workspace:
        yield workspace


@pytest.fixture
async def new(sandbox):
    """Makes backends without a ref; what they have opened is destroyed after the test."""
    made = []

    def make():
        made.append(sandbox.backend())
        return made[-1]

    yield make
    for backend in made:
        if backend.ref is not None:
            await sandbox.destroy(backend.ref)

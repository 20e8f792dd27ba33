"""Every rule of Pydantic AI for workspaces: none of its fixtures is left out."""

import pytest
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite


class TestRules(WorkspaceBackendSuite):
    @pytest.fixture
    def backend(self, new):
        return new()

    @pytest.fixture
    def fresh_backend(self, new):
        return new

    @pytest.fixture
    def attach_backend(self, sandbox):
        return sandbox.backend

    @pytest.fixture
    def destroy_environment(self, sandbox):
        async def destroy(backend):
            await sandbox.destroy(backend.ref)

        return destroy

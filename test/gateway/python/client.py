"""Does with SandboxdWorkspace what lines of JSON on stdin say, all at once.

Each has a number, which its answer has again, and names what it works on: a gateway,
and the name of a session or a ref. Of the same three it is the same backend.
"""

import asyncio
import json
import os
import sys

from pydantic_ai.workspaces import Workspace, WorkspaceRef
from pydantic_ai_backends.workspaces import SandboxdWorkspace

TOKEN = os.environ["BERTH_TEST_TOKEN"]


class Client:
    def __init__(self):
        self.backends = {}

    def backend(self, ask):
        key = (ask["gateway"], ask.get("name"), ask.get("ref"), ask.get("handle"))
        if key not in self.backends:
            sandbox = SandboxdWorkspace(service_url=ask["gateway"], token=TOKEN, session_name=ask.get("name"))
            ref = ask.get("ref") and WorkspaceRef(provider=sandbox.provider, id=ask["ref"])
            self.backends[key] = sandbox.backend(ref)
        return self.backends[key]

    async def do(self, ask):
        backend = self.backend(ask)
        if ask["do"] == "run":
            result = await backend.run(ask["argv"])
            answer = {"exit_code": result.exit_code, "stdout": result.stdout}
        elif ask["do"] == "write":
            await Workspace(backend).write_bytes(ask["path"], ask["text"].encode())
            answer = {}
        elif ask["do"] == "read":
            answer = {"stdout": (await Workspace(backend).read_bytes(ask["path"])).decode()}
        elif ask["do"] == "destroy":
            await backend.purge()
            answer = {}
        return {**answer, "ref": backend.ref and backend.ref.id}

    async def answer(self, ask):
        try:
            answer = await self.do(ask)
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps({"id": ask["id"], **answer}), flush=True)


async def main():
    client = Client()
    async with asyncio.TaskGroup() as tasks:
        while line := await asyncio.to_thread(sys.stdin.readline):
            tasks.create_task(client.answer(json.loads(line)))


asyncio.run(main())

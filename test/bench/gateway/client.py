"""Does work in services of sandboxd's protocol, by pydantic-ai-backend's own client.

Its first line of input is a JSON object of services, {NAME: {"url": …, "token": …}}.
Every other line asks for work, {"service": NAME, "work": …, "times": N}, and has one
line of answer: {"seconds": [how long each time took], "note": …}, or {"error": …}. At the end of
the input every workspace is destroyed.
"""

import asyncio
import contextlib
import json
import sys
import time
import traceback

from pydantic_ai.workspaces import Workspace, WorkspaceTimeoutError
from pydantic_ai_backends.workspaces import SandboxdWorkspace

SMALL, LARGE = bytes(range(256)) * 4, bytes(range(256)) * (8 << 12)
NOOP = ["/bin/true"]


class Work:
    """All work in one service: what is measured are its methods without underscore."""

    def __init__(self, provider):
        self._provider = provider
        self._made = []

    async def _start(self):
        self._workspace = self._fresh()
        self._dir = await self._workspace.working_dir()
        await self.write_small(0)
        await self.write_large(0)
        links = f"mkdir {self._dir}/links && cd {self._dir}/links && touch 0 1 2 3 4 5 6 7 8 && ln -s 0 link"
        result = await self._workspace.run(links, shell=True)
        assert result.exit_code == 0, result

    async def _end(self):
        for workspace in self._made:
            if workspace.ref is not None:
                await self._provider.destroy(workspace.ref)

    def _fresh(self):
        workspace = Workspace(self._provider.backend())
        self._made.append(workspace)
        return workspace

    async def _noop(self, workspace):
        result = await workspace.run(NOOP)
        assert result.exit_code == 0, result

    async def open(self, _):
        await self._noop(self._fresh())

    async def attach(self, _):
        await self._noop(Workspace(self._provider.backend(self._workspace.ref)))

    async def noop(self, _):
        await self._noop(self._workspace)

    async def noop_20(self, _):
        await asyncio.gather(*(self._noop(self._workspace) for _ in range(20)))

    async def stat(self, _):
        assert (await self._workspace.stat(f"{self._dir}/small")).size == len(SMALL)

    async def write_small(self, _):
        await self._workspace.write_bytes(f"{self._dir}/small", SMALL)

    async def read_small(self, _):
        assert await self._workspace.read_bytes(f"{self._dir}/small") == SMALL

    async def write_large(self, _):
        await self._workspace.write_bytes(f"{self._dir}/large", LARGE)

    async def read_large(self, _):
        assert len(await self._workspace.read_bytes(f"{self._dir}/large")) == len(LARGE)

    async def list_links(self, _):
        assert len(await self._workspace.list_dir(f"{self._dir}/links")) == 10

    async def background(self, _):
        result = await self._workspace.run("sleep 3 & echo x", shell=True)
        assert result.stdout == "x\n", result

    async def timeout(self, _):
        try:
            await self._workspace.run("setsid sleep 4242 & sleep 4242", shell=True, timeout=1)
        except WorkspaceTimeoutError:
            return
        raise AssertionError("no timeout")

    async def _after_timeout(self):
        result = await self._workspace.run("ps -o args | grep '[s]leep 4242'", shell=True)
        return ", and the child lives on" if result.exit_code == 0 else ""

    async def _after_open(self):
        await self._provider.destroy(self._made.pop().ref)


async def do(work, name, times):
    """Does the work so often. What comes after each time is not measured."""
    seconds, note = [], ""
    after = getattr(work, f"_after_{name}", None)
    for i in range(times):
        begin = time.perf_counter()
        await getattr(work, name)(i)
        seconds.append(time.perf_counter() - begin)
        if after is not None:
            note = await after() or note
    return {"seconds": seconds, "note": note}


async def answer(services, line):
    try:
        asked = json.loads(line)
        return await do(services[asked["service"]], asked["work"], asked["times"])
    except Exception:
        return {"error": traceback.format_exc()}


def say(what):
    print(json.dumps(what), flush=True)


async def main():
    async with contextlib.AsyncExitStack() as stack:
        services = {}
        for name, at in json.loads(sys.stdin.readline()).items():
            # It keeps its connections while it is entered.
            provider = await stack.enter_async_context(SandboxdWorkspace(service_url=at["url"], token=at["token"]))
            services[name] = Work(provider)
            stack.push_async_callback(services[name]._end)
            await services[name]._start()
        say({"seconds": []})
        while line := await asyncio.to_thread(sys.stdin.readline):
            say(await answer(services, line))


asyncio.run(main())

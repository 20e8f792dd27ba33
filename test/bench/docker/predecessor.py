"""Times the same work in pydantic-ai-backend's DockerWorkspace.

    predecessor.py IMAGE

prints one JSON object, {"what was done": [seconds, ...], ...}. Every workspace
that it makes is destroyed again.
"""

import asyncio
import json
import sys
import time

import docker
from pydantic_ai.workspaces import Workspace, WorkspaceTimeoutError
from pydantic_ai_backends.workspaces import DockerWorkspace

WORK = "/workspace"


async def timed(times, work):
    """Does the work so many times, after one that warms up."""
    taken = []
    for i in range(times + 1):
        begin = time.perf_counter()
        await work(i)
        if i > 0:
            taken.append(time.perf_counter() - begin)
    return taken


async def main(image):
    provider = DockerWorkspace(image=image, work_dir=WORK)
    engine = docker.from_env()
    made, results = [], {}

    def fresh(ref=None):
        workspace = Workspace(provider.backend(ref))
        made.append(workspace)
        return workspace

    workspace = fresh()

    async def noop(_):
        assert (await workspace.run(["/bin/true"])).exit_code == 0

    async def twenty(_):
        await asyncio.gather(*(noop(i) for i in range(20)))

    async def background(_):
        await workspace.run("sleep 3 & echo x", shell=True)

    async def timeout(_):
        try:
            await workspace.run("setsid sleep 60 & sleep 60", shell=True, timeout=1)
        except WorkspaceTimeoutError:
            return
        raise AssertionError("no timeout")

    small, large = b"x" * 1024, bytes(range(256)) * (8 << 12)

    async def write_small(i):
        await workspace.write_bytes(f"{WORK}/small{i}", small)

    async def read_small(i):
        assert await workspace.read_bytes(f"{WORK}/small{i}") == small

    async def write_large(_):
        await workspace.write_bytes(f"{WORK}/large", large)

    async def read_large(_):
        assert len(await workspace.read_bytes(f"{WORK}/large")) == len(large)

    async def stat(_):
        await workspace.stat(f"{WORK}/small0")

    async def listing(_):
        assert len(await workspace.list_dir(f"{WORK}/many")) == 1000

    async def cold(_):
        new = fresh()
        assert (await new.run(["/bin/true"])).exit_code == 0

    async def attach(_):
        attached = Workspace(provider.backend(workspace.ref))
        assert (await attached.run(["/bin/true"])).exit_code == 0

    async def attach_stopped(_):
        await asyncio.to_thread(engine.containers.get(workspace.ref.id).kill)
        begin = time.perf_counter()
        await attach(_)
        stopped.append(time.perf_counter() - begin)

    stopped = []
    try:
        await workspace.run(["/bin/true"])
        await workspace.run(f"mkdir -p {WORK}/many && cd {WORK}/many && touch $(seq 1000)", shell=True)
        for name, times, work in [
            ("no-op command", 40, noop),
            ("20 no-op commands at once", 5, twenty),
            ("write 1 KiB", 15, write_small),
            ("read 1 KiB", 15, read_small),
            ("write 8 MiB", 1, write_large),
            ("read 8 MiB", 1, read_large),
            ("stat", 20, stat),
            ("list 1,000 entries", 15, listing),
            ("a background child holds stdout", 5, background),
            ("timeout of 1 s, a setsid child", 2, timeout),
            ("cold create to first result", 8, cold),
            ("attach to a running one", 15, attach),
        ]:
            results[name] = await timed(times, work)
        await timed(4, attach_stopped)
        results["attach to a stopped one"] = stopped
    finally:
        for old in made:
            if old.ref is not None:
                await provider.destroy(old.ref)
    print(json.dumps(results))


asyncio.run(main(sys.argv[1]))

"""A Berth provider in Python: a folder on this machine for each workspace.

It holds files and runs no commands. It is no sandbox: paths may lead anywhere
that this user may go. docs/protocol.md explains the protocol that it speaks.
"""

import errno
import functools
import json
import os
import re
import secrets
import shutil
import signal
import stat
import sys
import threading
import time
from concurrent import futures

import grpc
from google.rpc import status_pb2

import berth_pb2 as pb
import berth_pb2_grpc

MAX_MESSAGE = 16 << 20  # what both sides accept in one message
CHUNK = 128 << 10  # how much of a file goes into one
ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
TOKEN = re.compile(r"berth-[0-9a-f]{16}\Z")
FEATURES = ["append", "chmod", "chtimes", "exclusive", "files", "rename", "symlink"]
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "root": {"type": "string", "description": "Where workspaces are kept.", "x-berth-path": True},
    },
}

# ---- Errors -------------------------------------------------------------------

# What a caller may decide on, with the code that suits it best.
CODES = {
    "invalid": grpc.StatusCode.INVALID_ARGUMENT,
    "unavailable": grpc.StatusCode.FAILED_PRECONDITION,
    "unsupported": grpc.StatusCode.UNIMPLEMENTED,
    "not_exist": grpc.StatusCode.NOT_FOUND,
    "exist": grpc.StatusCode.ALREADY_EXISTS,
    "permission": grpc.StatusCode.PERMISSION_DENIED,
}
ERRNO_KINDS = {
    errno.ENOENT: "not_exist",
    errno.EEXIST: "exist",
    errno.ENOTEMPTY: "exist",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
}


class Fault(Exception):
    """An error of one of the protocol's kinds, about the call's path or not."""

    def __init__(self, kind, text, about_path=False):
        super().__init__(text)
        self.kind = kind
        self.about_path = about_path


def detail_of(err, op, path):
    """Returns the ErrorDetail of an exception."""
    if isinstance(err, OSError):
        text = os.fsencode(err.strerror or str(err))
        kind = ERRNO_KINDS.get(err.errno)
        return pb.ErrorDetail(
            message=b"%s %s: %s" % (op.encode(), path, text),
            kinds=[kind] if kind else [],
            errno=errno.errorcode.get(err.errno, ""),
            path=pb.PathDetail(op=op.encode(), path=path, message=text),
        )
    text = os.fsencode(str(err))[: 64 << 10]
    detail = pb.ErrorDetail(message=text, kinds=[err.kind] if isinstance(err, Fault) else [])
    if getattr(err, "about_path", False):
        detail.path.CopyFrom(pb.PathDetail(op=op.encode(), path=path, message=text))
    return detail


def abort(context, err, op, path):
    """Ends a call with the whole error in its status."""
    detail = detail_of(err, op, path)
    code = CODES.get(detail.kinds[0], grpc.StatusCode.UNKNOWN) if detail.kinds else grpc.StatusCode.UNKNOWN
    message = re.sub(rb"[^ -~]", b"?", detail.message[: 4 << 10]).decode()
    status = status_pb2.Status(code=code.value[0], message=message)
    status.details.add().Pack(detail)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, message)


def path_of(request):
    return getattr(request, "path", b"") or getattr(request, "from", b"")


def answers(handler):
    """Turns what a handler raises into an error of the protocol."""

    @functools.wraps(handler)
    def call(self, request, context):
        try:
            return handler(self, request, context)
        except (OSError, Fault, ValueError) as err:
            abort(context, err, handler.__name__.lower(), path_of(request))

    return call


def streams(handler):
    """The same for a handler that sends a stream."""

    @functools.wraps(handler)
    def call(self, request, context):
        try:
            yield from handler(self, request, context)
        except (OSError, Fault, ValueError) as err:
            abort(context, err, handler.__name__.lower(), path_of(request))

    return call


# ---- Files --------------------------------------------------------------------


def info(path, follow):
    """Describes a file as Stat and ReadDir (follow), or as Lstat do."""
    own = os.lstat(path)
    link = stat.S_ISLNK(own.st_mode)
    st = os.stat(path) if follow and link else own
    return pb.FileInfo(
        name=os.path.basename(path.rstrip(b"/")) or b"/",
        size=st.st_size,
        mode=st.st_mode,
        mod_time=pb.Time(seconds=st.st_mtime_ns // 10**9, nanos=st.st_mtime_ns % 10**9),
        link=link,
        target=os.readlink(path) if link else b"",
    )


def entry(path):
    """Describes an entry of a listing: a link that leads nowhere is one, too."""
    try:
        return info(path, True)
    except OSError:
        return info(path, False)


def real(path):
    """Resolves as realpath -m does; a loop is ELOOP."""
    resolved = above = os.path.realpath(path)
    while above != b"/":
        if os.path.islink(above):  # realpath gave up on it
            raise fail(errno.ELOOP)
        above = os.path.dirname(above)
    return resolved


def fail(number, text=None):
    return OSError(number, text or os.strerror(number))


def make_parents(path):
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except FileExistsError:
        raise fail(errno.ENOTDIR) from None


class Provider(berth_pb2_grpc.ProviderServicer):
    def __init__(self):
        self.root = None

    # ---- The plugin

    def Describe(self, request, context):
        return pb.DescribeResponse(
            name="python", version="0.1.0", features=FEATURES, config_schema=json.dumps(SCHEMA).encode()
        )

    @answers
    def Configure(self, request, context):
        config = json.loads(request.config or b"{}")
        root = os.fsencode(config.get("root", "")) or os.path.join(request.data_dir, b"workspaces")
        for part in (b"ws", b"tmp"):
            os.makedirs(os.path.join(root, part), exist_ok=True)
        self.root = os.path.realpath(root)
        return pb.ConfigureResponse(features=["list"])

    # ---- Workspaces

    def at(self, *parts):
        if self.root is None:
            raise Fault("unavailable", "the provider is not configured yet")
        return os.path.join(self.root, *(os.fsencode(p) for p in parts))

    def folder(self, key):
        """Returns a workspace's folder, if it is there and still the same."""
        if not ID.match(key.id):
            raise Fault("unavailable", f"no workspace {key.id}")
        try:
            with open(self.at("ws", key.id, "incarnation"), "rb") as f:
                incarnation = f.read()
        except FileNotFoundError:
            raise Fault("unavailable", f"workspace {key.id} is gone") from None
        if key.incarnation not in (b"", incarnation):
            raise Fault("unavailable", f"workspace {key.id} was replaced by another one")
        return self.at("ws", key.id, "files"), incarnation

    def path(self, request, path):
        """Returns the absolute path in a workspace's file system."""
        if not path or b"\0" in path:
            raise Fault("invalid", "the path is empty or holds a NUL byte", about_path=True)
        return os.path.join(self.folder(request.workspace)[0], path)

    def opened(self, workspace_id):
        folder, incarnation = self.folder(pb.WorkspaceKey(id=workspace_id))
        return pb.OpenResponse(
            opened=pb.Opened(id=workspace_id, incarnation=incarnation, working_dir=folder, features=FEATURES)
        )

    @streams
    def Create(self, request, context):
        key = request.name or request.token
        if not ID.match(key):
            raise Fault("invalid", "neither a token nor a name")
        # Made aside and renamed into place: whoever comes second finds the first.
        made = self.at("tmp", secrets.token_hex(8))
        os.makedirs(os.path.join(made, b"files"))
        with open(os.path.join(made, b"incarnation"), "w") as f:
            f.write(secrets.token_hex(8))
        try:
            os.rename(made, self.at("ws", key))
        except OSError as err:
            shutil.rmtree(made)
            if err.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        yield self.opened(key)

    @streams
    def Attach(self, request, context):
        yield self.opened(request.workspace.id)

    @answers
    def Destroy(self, request, context):
        gone = self.at("tmp", secrets.token_hex(8))
        if ID.match(request.id):
            try:
                os.rename(self.at("ws", request.id), gone)
            except FileNotFoundError:
                pass  # gone already is success
            else:
                shutil.rmtree(gone)
        return pb.DestroyResponse()

    @streams
    def List(self, request, context):
        if request.labels:
            raise Fault("unsupported", "workspaces have no labels here")
        for name in sorted(os.listdir(self.at("ws"))):
            created = os.stat(self.at("ws", name, "incarnation")).st_mtime_ns
            if time.time_ns() - created < request.older_than_ns:
                continue
            name = name.decode()
            yield pb.ListResponse(
                id=name,
                name="" if TOKEN.match(name) else name,
                created=pb.Time(seconds=created // 10**9, nanos=created % 10**9),
                state="ready",
            )

    # ---- Files

    @answers
    def Stat(self, request, context):
        return pb.StatResponse(info=info(self.path(request, request.path), True))

    @answers
    def Lstat(self, request, context):
        return pb.LstatResponse(info=info(self.path(request, request.path), False))

    @streams
    def ReadDir(self, request, context):
        path = self.path(request, request.path)
        batch, size = [], 0
        for name in sorted(os.listdir(path)):
            try:
                batch.append(entry(os.path.join(path, name)))
            except FileNotFoundError:
                continue  # removed meanwhile
            size += batch[-1].ByteSize()
            if size > CHUNK:
                yield pb.ReadDirResponse(entries=batch)
                batch, size = [], 0
        yield pb.ReadDirResponse(entries=batch, end=True)

    @streams
    def ReadFile(self, request, context):
        if request.offset < 0 or request.length < 0:
            raise Fault("invalid", "a negative offset or length")
        path = self.path(request, request.path)
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise fail(errno.EISDIR)
        if not stat.S_ISREG(mode):  # a FIFO must not make us wait
            raise fail(errno.EINVAL, "not a regular file")
        with open(path, "rb") as f:
            yield pb.ReadFileResponse(info=info(path, True))
            f.seek(request.offset)
            left, sent = request.length or sys.maxsize, 0
            while data := f.read(min(CHUNK, left)):
                left -= len(data)
                sent += len(data)
                yield pb.ReadFileResponse(data=data)
            yield pb.ReadFileResponse(end=sent)

    def WriteFile(self, requests, context):
        path = b""
        try:
            start = next(requests).start
            path = start.path
            return self.write(start, requests)
        except (OSError, Fault, ValueError, StopIteration) as err:
            abort(context, err, "open", path)

    def write(self, start, requests):
        path = real(self.path(start, start.path)) if not start.exclusive else self.path(start, start.path)
        if start.exclusive and os.path.lexists(path):
            raise fail(errno.EEXIST)
        if os.path.isdir(path):
            raise fail(errno.EISDIR)
        if os.path.exists(path) and not os.path.isfile(path):
            raise fail(errno.EINVAL, "not a regular file")
        staged, written, complete = self.at("tmp", secrets.token_hex(8)), 0, False
        try:
            with open(staged, "xb") as f:
                for request in requests:
                    if request.WhichOneof("message") == "data":
                        written += f.write(request.data)
                    elif request.WhichOneof("message") == "end":
                        complete = request.end == written
                        break
            if not complete:  # a stream that broke changes nothing
                raise Fault("canceled", "the file was not sent to its end")
            make_parents(path)
            self.publish(start, staged, path)
        finally:
            if os.path.exists(staged):
                os.unlink(staged)
        if start.HasField("mod_time"):
            when = start.mod_time.seconds * 10**9 + start.mod_time.nanos
            os.utime(path, ns=(when, when))
        return pb.WriteFileResponse(written=written)

    def publish(self, start, staged, path):
        if start.append and os.path.exists(path):
            with open(staged, "rb") as src, open(path, "ab") as dst:
                shutil.copyfileobj(src, dst)
            return
        exists = os.path.exists(path)
        mode = os.stat(path).st_mode if exists else (start.mode if start.HasField("mode") else 0o644)
        os.chmod(staged, stat.S_IMODE(mode))
        if start.exclusive:
            os.link(staged, path)  # fails if the path is there by now
        else:
            os.replace(staged, path)

    @answers
    def MkdirAll(self, request, context):
        os.makedirs(self.path(request, request.path), exist_ok=True)
        return pb.MkdirAllResponse()

    @answers
    def Remove(self, request, context):
        path = self.path(request, request.path)
        folder = self.folder(request.workspace)[0]
        head, tail = os.path.split(path.rstrip(b"/"))
        actual = os.path.join(real(head), tail) if tail not in (b"", b".", b"..") else real(path)
        if (folder + b"/").startswith(actual.rstrip(b"/") + b"/"):
            raise Fault("invalid", "the working directory and what is above it are not removed", about_path=True)
        if os.path.isdir(actual) and not os.path.islink(actual):
            shutil.rmtree(actual)
        else:
            os.unlink(actual)
        return pb.RemoveResponse()

    @answers
    def Rename(self, request, context):
        old, new = self.path(request, getattr(request, "from")), self.path(request, request.to)
        os.lstat(old)
        if os.path.isdir(new) and not os.path.islink(new):
            raise fail(errno.EEXIST)  # as Go's os.Rename, which the contract names
        os.rename(old, new)
        return pb.RenameResponse()

    @answers
    def Symlink(self, request, context):
        os.symlink(request.target, self.path(request, request.path))
        return pb.SymlinkResponse()

    @answers
    def Readlink(self, request, context):
        return pb.ReadlinkResponse(target=os.readlink(self.path(request, request.path)))

    @answers
    def Chmod(self, request, context):
        os.chmod(self.path(request, request.path), stat.S_IMODE(request.mode))
        return pb.ChmodResponse()

    @answers
    def Chtimes(self, request, context):
        when = request.mod_time.seconds * 10**9 + request.mod_time.nanos
        os.utime(self.path(request, request.path), ns=(when, when))
        return pb.ChtimesResponse()

    @answers
    def RealPath(self, request, context):
        return pb.RealPathResponse(path=real(self.path(request, request.path)))


# ---- The process --------------------------------------------------------------


def hold_lifeline():
    """Ends this process when the host is gone."""
    fd = int(os.environ.pop("BERTH_LIFELINE_FD", "-1"))
    if fd < 0:
        return
    os.set_inheritable(fd, False)

    def wait():
        while os.read(fd, 16):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main():
    if os.environ.get("BERTH_PLUGIN") != "6c1f3f0e0d3a4b6f9f0c6a7b1d2e8a45":
        sys.exit("This is a plugin: a Berth host starts it.")
    if "1" not in os.environ.get("PLUGIN_PROTOCOL_VERSIONS", "").split(","):
        sys.exit("This plugin speaks protocol version 1, the host %r." % os.environ.get("PLUGIN_PROTOCOL_VERSIONS"))
    hold_lifeline()
    os.umask(0o022)

    stopping = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the host's to answer
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())

    def shutdown(request, context):
        stopping.set()
        return b""

    size = [("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.max_send_message_length", MAX_MESSAGE)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=64), options=size)
    berth_pb2_grpc.add_ProviderServicer_to_server(Provider(), server)
    raw = grpc.unary_unary_rpc_method_handler  # without a serializer: messages as bytes
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler("plugin.GRPCController", {"Shutdown": raw(shutdown)}),
            # A HealthCheckResponse with the status SERVING.
            grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": raw(lambda r, c: b"\x08\x01")}),
        )
    )
    socket = os.path.join(os.environ["PLUGIN_UNIX_SOCKET_DIR"], "plugin.sock")
    server.add_insecure_port("unix:" + socket)
    server.start()
    print(f"1|1|unix|{socket}|grpc|", flush=True)
    os.dup2(2, 1)  # whatever prints from here on goes to the log
    stopping.wait()
    server.stop(grace=1).wait()


if __name__ == "__main__":
    main()

"""Has schemathesis also ask what can be answered, and look at lines of JSON.

What it makes up names no file and no program. Most of that is replaced, in turn, so
that a seed still says it all.
"""

import collections
import json
import os

import jsonschema_rs
import schemathesis

MADE = [f"/workspace/made/{n}" for n in range(3)]
PATHS = [
    "/workspace/file",
    "/workspace",
    "/workspace/link",
    "/workspace/folder",
    *MADE,
    "/workspace/dangling",
    "/workspace/loop",
    "/workspace/fifo",
    "/workspace/file/below",
    "/etc/passwd",
    "/dev/null",
    "/",
]
COMMANDS = [
    ["sh", "-c", "printf out; printf err >&2; exit 3"],
    ["true"],
    ["sleep", "0.3"],
    ["printf", "\\377"],
    ["sh", "-c", "kill -9 $$"],
]
# Runs that are there, by the last name of what is asked of them.
RUNS = {
    "output": ["0c1d" * 8],
    "stdin": ["1c2d" * 8],
    "signal": ["2c3d" * 8],
    "stop": ["3c4d" * 8],
}
turns = collections.Counter()


def pick(operation, known, made_up):
    """The next of what is known, and after each round what was made up."""
    at = turns[operation] % (len(known) + 1)
    turns[operation] += 1
    return known[at] if at < len(known) else made_up


@schemathesis.hook
def before_call(context, case, kwargs):
    operation = case.operation.label
    last = operation.rpartition("/")[2]
    known = PATHS
    if last in ("remove", "write", "mkdir") or operation.startswith("PUT /sessions/"):
        known = [*MADE, "/workspace", "/", "/workspace/file/below"]
    body = case.body
    if isinstance(body, dict):
        if isinstance(body.get("path"), str):
            path = pick(operation, known, body["path"])
            if "/workspaces/" in operation:  # those are relative
                path = path.removeprefix("/workspace").lstrip("/") or "."
            body["path"] = path
        if isinstance(body.get("argv"), list) and all(isinstance(a, str) for a in body["argv"]):
            body["argv"] = pick(operation, COMMANDS, body["argv"])
        if isinstance(body.get("sessions"), list) and all(isinstance(s, str) for s in body["sessions"]):
            body["sessions"] = pick(operation, [["fuzzed"], ["fuzzed", "gone"]], body["sessions"])
        if last == "signal" and isinstance(body.get("signal"), str):
            body["signal"] = pick(operation, ["WINCH", "CONT"], body["signal"])
    if isinstance(case.query, dict) and isinstance(case.query.get("path"), str):
        case.query["path"] = pick(operation, known, case.query["path"])
        if last == "content":
            case.query.pop("path_b64", None)
    if isinstance(case.path_parameters, dict) and isinstance(case.path_parameters.get("run_id"), str):
        case.path_parameters["run_id"] = pick(operation + "#run", RUNS[last], case.path_parameters["run_id"])


@schemathesis.hook
def after_call(context, case, response):
    with open(os.environ["BERTH_TEST_ANSWERS"], "a", encoding="utf-8") as answers:
        answers.write(f"{response.status_code} {case.operation.label}\n")


@schemathesis.check
def line_conformance(ctx, response, case):
    """Each line of a stream is what the document says of lines."""
    if "application/x-ndjson" not in response.headers.get("content-type", [""])[0]:
        return
    document = case.operation.schema.raw_schema
    said = document["paths"][case.operation.path][case.operation.method]["responses"]
    schema = said[str(response.status_code)]["content"]["application/x-ndjson"]["schema"]
    line_schema = jsonschema_rs.validator_for({**schema, "components": document["components"]})
    lines = response.content.decode().splitlines()
    assert lines, "a stream without a line"
    for line in lines:
        assert line_schema.is_valid(json.loads(line)), f"a line that the document has not: {line}"

#!/bin/sh
# Builds berth-provider-python into the folder given (default: bin beside this
# file), with a virtual environment of its own. Needs Python 3.9 and its venv.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/bin}
mkdir -p "$out"
out=$(cd "$out" && pwd)
lib=$out/berth-provider-python.d
python3 -m venv "$lib"
"$lib/bin/pip" install -q grpcio==1.85.1 grpcio-tools==1.85.1 googleapis-common-protos
"$lib/bin/python" -m grpc_tools.protoc -I "$here/../../shared/wire/berthv1" \
    --python_out="$lib" --grpc_python_out="$lib" berth.proto
{
    printf '#!%s\n' "$lib/bin/python"
    printf 'import sys\nsys.path.insert(0, %s)\n' "'$lib'"
    cat "$here/provider.py"
} >"$out/berth-provider-python"
chmod 755 "$out/berth-provider-python"

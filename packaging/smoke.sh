#!/bin/bash
# Whether a program works at all: version, the main job with the built-in model on the CPU, and what the doctor says.
#
#     packaging/smoke.sh BINARY
set -euo pipefail
fail() { echo "packaging/smoke.sh: $*" >&2; exit 1; }
version=$("$(dirname "$0")/version.sh")
[ "$("$1" --version)" = "loquat $version" ] || fail "it is not version $version: $("$1" --version)"
answer=$("$1" run --device cpu --temperature 0 "How do I attach a picture?" </dev/null 2>/dev/null) || fail "it does not answer"
[ -n "$answer" ] || fail "its answer is empty"
"$1" doctor </dev/null || fail "its doctor finds something wrong"

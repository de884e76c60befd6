#!/bin/bash
# Prints the version; Cargo.toml is the one place that has it.
set -euo pipefail
sed -n 's/^version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml" | head -1

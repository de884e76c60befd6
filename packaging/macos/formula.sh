#!/bin/bash
# Prints the Homebrew formula of a release, whose SHA256SUMS are in FOLDER.
#
#     packaging/macos/formula.sh HOMEPAGE URL FOLDER
#
# URL is the folder that the archives are downloaded from.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=$("$here/../version.sh")
hash() {
    local found
    found=$(sed -n "s|^\([0-9a-f]\{64\}\)  \./loquat-$version-$1\.tar\.xz\$|\1|p" "$sums")
    [ -n "$found" ] || { echo "formula.sh: $sums has no archive for $1" >&2; exit 1; }
    echo "$found"
}
sums=$3/SHA256SUMS
macos=$(hash macos-universal) x86_64=$(hash linux-x86_64) aarch64=$(hash linux-aarch64)
sed -e "s|{{VERSION}}|$version|g" -e "s|{{HOMEPAGE}}|$1|" -e "s|{{URL}}|${2%/}|" -e "s|{{HASH_MACOS}}|$macos|" \
    -e "s|{{HASH_LINUX_X86_64}}|$x86_64|" -e "s|{{HASH_LINUX_AARCH64}}|$aarch64|" "$here/loquat.rb"

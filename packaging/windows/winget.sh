#!/bin/bash
# Fills the manifests of winget for a release.
#
#     packaging/windows/winget.sh URL SETUP-X64 SETUP-ARM64 OUT-FOLDER
#
# URL is the folder that the setup programs are downloaded from.
set -euo pipefail
url=${1%/} x64=$2 arm64=$3 out=$4
here=$(cd "$(dirname "$0")" && pwd)
version=$("$here/../version.sh")
hash() { sha256sum "$1" | cut -d' ' -f1 | tr a-f A-F; }
mkdir -p "$out"
for file in "$here"/winget/*.yaml; do
    sed -e "s|{{VERSION}}|$version|g" \
        -e "s|{{URL_X64}}|$url/$(basename "$x64")|" -e "s|{{HASH_X64}}|$(hash "$x64")|" \
        -e "s|{{URL_ARM64}}|$url/$(basename "$arm64")|" -e "s|{{HASH_ARM64}}|$(hash "$arm64")|" \
        "$file" > "$out/$(basename "$file")"
done

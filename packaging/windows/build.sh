#!/bin/bash
# Makes the setup program of Windows, on any system that has makensis.
#
#     packaging/windows/build.sh LOQUAT.EXE x64|arm64 OUT-FOLDER
set -euo pipefail
program=$(realpath "$1") arch=$2 out=$(realpath "$3")
cd "$(dirname "$0")"
version=$(../version.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
../dependencies.py notices > "$work/notices.txt"
# makensis of Windows wants its own paths.
native() { if command -v cygpath >/dev/null; then cygpath -w "$1"; else echo "$1"; fi; }
makensis -V2 -WX "-DVERSION=$version" "-DARCH=$arch" "-DPROGRAM=$(native "$program")" \
    "-DNOTICES=$(native "$work/notices.txt")" "-DOUT=$(native "$out")/loquat-$version-windows-$arch-setup.exe" loquat.nsi

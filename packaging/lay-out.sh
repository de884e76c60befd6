#!/bin/bash
# Lays out what every package of a Unix holds, as it lies under a prefix.
#
#     packaging/lay-out.sh BINARY FOLDER
set -euo pipefail
binary=$1 files=$2
here=$(cd "$(dirname "$0")" && pwd)
share=$files/share
mkdir -p "$files/bin" "$share"/{man/man1,doc/loquat,bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
install -m 755 "$binary" "$files/bin/loquat"
"$binary" man --out "$share/man/man1"
gzip -9n "$share"/man/man1/*
"$binary" completions bash > "$share/bash-completion/completions/loquat"
"$binary" completions zsh > "$share/zsh/site-functions/_loquat"
"$binary" completions fish > "$share/fish/vendor_completions.d/loquat.fish"
(cd "$here/.." && install -m 644 README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$share/doc/loquat/")
"$here/dependencies.py" notices > "$share/doc/loquat/THIRD-PARTY-NOTICES"
gzip -9n "$share/doc/loquat/THIRD-PARTY-NOTICES"

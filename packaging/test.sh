#!/bin/bash
# Makes the packages of a program and tries them: installs, runs the main job, removes, and refuses a changed archive.
#
#     packaging/test.sh BINARY
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "packaging/test.sh: $*" >&2; exit 1; }
XZ_OPT=-0 packaging/build.sh "$1" >/dev/null
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Nothing of the person who runs this is touched.
export HOME=$work/home XDG_CONFIG_HOME=$work/home/config XDG_CACHE_HOME=$work/home/cache XDG_DATA_HOME=$work/home/data
mkdir -p "$HOME"
ask() { "$1" run --device cpu --temperature 0 "How do I attach a picture?" </dev/null 2>/dev/null; }
check() { # PREFIX
    [ -n "$(ask "$1/bin/loquat")" ] || fail "the installed program does not answer"
    gzip -t "$1/share/man/man1/loquat.1.gz"
    gzip -dc "$1/share/man/man1/loquat.1.gz" | grep -q 'loquat' || fail "the manual page is empty"
    bash -c "source '$1/share/bash-completion/completions/loquat' && complete -p loquat" >/dev/null ||
        fail "bash does not complete loquat"
    grep -qx 'Terminal=true' "$1/share/applications/loquat.desktop"
}

archive=target/packages/loquat-$version-linux-$(uname -m).tar.xz
tar -C "$work" -xJf "$archive"
tree=$work/$(basename "$archive" .tar.xz)
"$tree/install.sh" --prefix "$work/prefix" >/dev/null
check "$work/prefix"
"$tree/install.sh" --prefix "$work/prefix" >/dev/null # over itself, as an update does
touch "$work/prefix/bin/other"
"$tree/install.sh" --uninstall --prefix "$work/prefix" >/dev/null
[ "$(find "$work/prefix" -type f)" = "$work/prefix/bin/other" ] || fail "uninstalling left files, or took others"

printf 'x' >> "$tree/files/bin/loquat"
if "$tree/install.sh" --prefix "$work/tampered" >/dev/null 2>"$work/why"; then fail "a changed file was installed"; fi
grep -q 'download the archive again' "$work/why" || fail "the refusal does not say what to do"
[ ! -e "$work/tampered/bin" ] || fail "a refused archive left files"

if command -v dpkg-deb >/dev/null; then
    deb=target/packages/loquat_${version}_$(dpkg --print-architecture).deb
    dpkg-deb -x "$deb" "$work/root"
    check "$work/root/usr"
    # As a person does it, where that leaves nothing behind.
    if [ "$(id -u)" = 0 ] && ! dpkg -s loquat >/dev/null 2>&1; then
        dpkg -i "$deb" >/dev/null
        check /usr
        dpkg --purge loquat >/dev/null
        left=$(dpkg-deb -c "$deb" | awk '$1 !~ /^d/ { print substr($6, 2) }' |
            while read -r file; do if [ -e "$file" ]; then echo "$file"; fi; done)
        [ -z "$left" ] || fail "purging left $left"
    fi
fi
if command -v shellcheck >/dev/null; then shellcheck packaging/*.sh .ci/run; fi
if command -v desktop-file-validate >/dev/null; then desktop-file-validate packaging/loquat.desktop; fi
if command -v lintian >/dev/null; then lintian --fail-on error "$deb"; fi
echo "the packages work"

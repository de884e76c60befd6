#!/bin/bash
# Makes the packages of a program and tries them: installs, runs the main job, removes, and refuses a changed archive.
# What a machine has no tool for is skipped, and said.
#
#     packaging/test.sh BINARY
#
# GLIBC_FLOOR is the version of the C library that the program may need at most.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "packaging/test.sh: $*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
skip() { echo "packaging/test.sh: SKIPPED: $*"; }
version=$(packaging/version.sh)

# Before anything slow: what is written down.
grep -qE "^## (\[?$version\]?|\[?Unreleased\]?)" CHANGELOG.md || fail "CHANGELOG.md has neither $version nor Unreleased"
packaging/dependencies.py check
if have shellcheck; then
    shellcheck packaging/*.sh packaging/*/*.sh packaging/macos/Loquat.command .ci/run
else
    skip "the scripts' lints (no shellcheck)"
fi
if python3 -c 'import yaml' 2>/dev/null; then packaging/check-texts.py; else skip "workflow and winget manifests (no python3-yaml)"; fi
if have ruby; then ruby -c packaging/macos/loquat.rb >/dev/null; else skip "the formula's syntax (no ruby)"; fi
if have desktop-file-validate; then
    desktop-file-validate packaging/loquat.desktop
else
    skip "the desktop entry (no desktop-file-validate)"
fi
if cargo deny --version >/dev/null 2>&1; then cargo deny check bans licenses sources; else skip "cargo deny"; fi

PACKAGE_LEVEL=0 packaging/build.sh "$1" >/dev/null

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Nothing of the person who runs this is touched.
home() { HOME=$work/home XDG_CONFIG_HOME='' XDG_CACHE_HOME='' XDG_DATA_HOME='' LOQUAT_MODEL='' "$@"; }
kept=$work/home/.local/share/loquat/history/history.db
mkdir -p "$(dirname "$kept")"
chmod 700 "$(dirname "$kept")"
: > "$kept"

check() { # PREFIX
    home packaging/smoke.sh "$1/bin/loquat" >"$work/smoke" || { cat "$work/smoke"; fail "$1 does not work"; }
    gzip -t "$1/share/man/man1/loquat.1.gz"
    gzip -dc "$1/share/man/man1/loquat.1.gz" | grep 'loquat' >/dev/null || fail "the manual page is empty"
    bash -c "source '$1/share/bash-completion/completions/loquat' && complete -p loquat" >/dev/null ||
        fail "bash does not complete loquat"
    grep -qx 'Terminal=true' "$1/share/applications/loquat.desktop"
    gzip -dc "$1/share/doc/loquat/THIRD-PARTY-NOTICES.gz" | grep '^ratatui ' >/dev/null || fail "the notices do not name what is in it"
}

archive=target/packages/loquat-$version-linux-$(uname -m).tar.xz
tar -C "$work" -xJf "$archive"
tree=$work/$(basename "$archive" .tar.xz)

# What it asks of a machine.
glibc=$(packaging/glibc.sh "$tree/files/bin/loquat")
floor=${GLIBC_FLOOR:-2.35}
[ "$(printf '%s\n' "$glibc" "$floor" | sort -V | tail -1)" = "$floor" ] || fail "it needs glibc $glibc; the README says $floor"
needed=$(readelf -d "$tree/files/bin/loquat" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for library in $needed; do
    case $library in
        libc.so.* | libm.so.* | libgcc_s.so.* | ld-linux*) ;;
        *) fail "it needs $library; drivers and the like are looked for when it runs" ;;
    esac
done
# Without any Vulkan driver.
home env VK_ICD_FILENAMES=/dev/null VK_DRIVER_FILES=/dev/null "$tree/files/bin/loquat" doctor --json </dev/null >"$work/doctor" ||
    fail "its doctor fails without a Vulkan driver"
grep -q 'none was found: models run on the processor' "$work/doctor" || fail "a driver was found where none can be"
[ -n "$(home env VK_ICD_FILENAMES=/dev/null VK_DRIVER_FILES=/dev/null "$tree/files/bin/loquat" run --temperature 0 'What is Loquat?' </dev/null 2>/dev/null)" ] ||
    fail "it does not answer without a Vulkan driver"

"$tree/install.sh" --prefix "$work/prefix" >/dev/null
check "$work/prefix"
"$tree/install.sh" --prefix "$work/prefix" >/dev/null # over itself, as an update does
touch "$work/prefix/bin/other"
"$tree/install.sh" --uninstall --prefix "$work/prefix" >/dev/null
[ "$(find "$work/prefix" -type f)" = "$work/prefix/bin/other" ] || fail "uninstalling left files, or took others"
"$tree/install.sh" --prefix "$work/prefix" >/dev/null
home "$work/prefix/bin/loquat" uninstall --yes </dev/null >/dev/null
[ "$(find "$work/prefix" -type f)" = "$work/prefix/bin/other" ] || fail "loquat uninstall left files, or took others"
[ -e "$kept" ] || fail "conversations are gone"

printf 'x' >> "$tree/files/bin/loquat"
if "$tree/install.sh" --prefix "$work/tampered" >/dev/null 2>"$work/why"; then fail "a changed file was installed"; fi
grep -q 'download the archive again' "$work/why" || fail "the refusal does not say what to do"
[ ! -e "$work/tampered/bin" ] || fail "a refused archive left files"

if have dpkg-deb; then
    deb=target/packages/loquat_${version}_$(dpkg --print-architecture).deb
    [ "$(dpkg-deb -f "$deb" Version)" = "$version" ] || fail "the .deb is of another version"
    if dpkg-deb -I "$deb" | grep -E ' (pre|post)(inst|rm) ' >/dev/null; then fail "the .deb has scripts"; fi
    # As a person does it, where that leaves nothing behind.
    if [ "$(id -u)" = 0 ] && ! dpkg -s loquat >/dev/null 2>&1; then
        dpkg -i "$deb" >/dev/null
        check /usr
        home loquat update | grep 'apt install' >/dev/null || fail "it does not say how a package is updated"
        dpkg --purge loquat >/dev/null
        left=$(dpkg-deb -c "$deb" | awk '$1 !~ /^d/ { print substr($6, 2) }' |
            while read -r file; do if [ -e "$file" ]; then echo "$file"; fi; done)
        [ -z "$left" ] || fail "purging left $left"
        [ -e "$kept" ] || fail "purging took conversations"
    else
        skip "installing the .deb (not root, or Loquat is installed)"
        dpkg-deb -x "$deb" "$work/root"
        check "$work/root/usr"
    fi
    if have lintian; then lintian --allow-root --fail-on error,warning "$deb"; else skip "the .deb's lints (no lintian)"; fi
else
    skip "the .deb (no dpkg-deb)"
fi

if have rpmbuild; then
    rpm=$(echo target/packages/loquat-"$version"-1.*.rpm)
    asked() { rpm -qp --dbpath "$work/rpmdb" "$@" "$rpm" 2>/dev/null; }
    [ "$(asked --qf '%{VERSION} %{LICENSE}')" = "$version MIT OR Apache-2.0" ] || fail "the .rpm is of another version"
    [ -z "$(asked --scripts)" ] || fail "the .rpm has scripts"
    requires=$(asked --requires | grep -v '^rpmlib')
    [ "$requires" = "$(printf 'glibc >= %s\nlibgcc' "$glibc")" ] || fail "the .rpm requires: $requires"
    contents=$(asked --list)
    for file in bin/loquat share/man/man1/loquat.1.gz share/applications/loquat.desktop share/zsh/site-functions/_loquat \
        share/doc/loquat/LICENSE-MIT share/doc/loquat/THIRD-PARTY-NOTICES.gz; do
        grep -qx "/usr/$file" <<< "$contents" || fail "the .rpm has no /usr/$file"
    done
    if grep -v '^/usr/' <<< "$contents"; then fail "the .rpm has files outside of /usr"; fi
    # Debian's rpm knows none of its requirements.
    if [ "$(id -u)" = 0 ]; then
        mkdir -p "$work/rpmroot"
        rpm --root "$work/rpmroot" --nodeps -i "$rpm" >/dev/null 2>&1 || fail "the .rpm can't be installed"
        rpm --root "$work/rpmroot" -V --nodeps loquat >/dev/null || fail "what the .rpm installs is not what it says"
        check "$work/rpmroot/usr"
        rpm --root "$work/rpmroot" -e loquat >/dev/null 2>&1 || fail "the .rpm can't be removed"
        [ -z "$(find "$work/rpmroot/usr" -type f)" ] || fail "removing the .rpm left files"
    else
        skip "installing the .rpm (not root)"
    fi
else
    skip "the .rpm (no rpmbuild)"
fi

(cd target/packages && sha256sum --quiet -c SHA256SUMS) || fail "SHA256SUMS is wrong"
if have makensis && { have wine64 || have wine || [ -x /usr/lib/wine/wine64 ]; }; then
    packaging/windows/test.sh
else
    skip "the setup program of Windows (no makensis, or no wine)"
fi
echo "the packages work"

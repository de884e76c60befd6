#!/bin/bash
# Makes the packages that this machine can make, into target/packages: an archive with an installer, and a .deb.
#
#     packaging/build.sh [BINARY]        without one, cargo builds it
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
binary=${1:-target/release/loquat}
[ $# -gt 0 ] || cargo build --release --locked
[ -x "$binary" ] || { echo "build.sh: there is no program at $binary" >&2; exit 1; }
arch=$(uname -m)
maintainer="Loquat developers <loquat@users.noreply.github.com>"
out=target/packages
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

# What every package holds, as it lies under a prefix.
files=$work/files
mkdir -p "$files"/{bin,share/man/man1,share/applications,share/icons/hicolor/scalable/apps,share/doc/loquat} \
    "$files"/share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
install -m 755 "$binary" "$files/bin/loquat"
strip "$files/bin/loquat"
loquat=$files/bin/loquat
"$loquat" man --out "$files/share/man/man1"
gzip -9n "$files"/share/man/man1/*
"$loquat" completions bash > "$files/share/bash-completion/completions/loquat"
"$loquat" completions zsh > "$files/share/zsh/site-functions/_loquat"
"$loquat" completions fish > "$files/share/fish/vendor_completions.d/loquat.fish"
install -m 644 packaging/loquat.desktop "$files/share/applications/"
install -m 644 packaging/loquat.svg "$files/share/icons/hicolor/scalable/apps/"
install -m 644 README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$files/share/doc/loquat/"

# The least C library that has all symbols which the program asks for.
glibc=$(objdump -T "$loquat" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
glibc=${glibc#GLIBC_}
echo "needs glibc $glibc or later"

# An archive whose installer checks every file before it touches anything.
archive=loquat-$version-linux-$arch
tree=$work/$archive
mkdir "$tree"
cp -a "$files" "$tree/files"
install -m 755 packaging/install.sh "$tree/"
(cd "$tree" && find files -type f -print0 | sort -z | xargs -0 sha256sum > SHA256SUMS)
tar -C "$work" --owner=0 --group=0 --sort=name -cJf "$out/$archive.tar.xz" "$archive"

if command -v dpkg-deb >/dev/null; then
    deb_arch=$(dpkg --print-architecture)
    root=$work/deb
    mkdir -p "$root/DEBIAN" "$root/usr"
    cp -a "$files/." "$root/usr/"
    mkdir -p "$root/usr/share/zsh/vendor-completions"
    mv "$root/usr/share/zsh/site-functions/_loquat" "$root/usr/share/zsh/vendor-completions/"
    rmdir "$root/usr/share/zsh/site-functions"
    doc=$root/usr/share/doc/loquat
    gzip -9n "$doc/CHANGELOG.md"
    cat > "$doc/changelog" <<CHANGES
loquat ($version) unstable; urgency=medium

  * What is new is told in CHANGELOG.md.

 -- $maintainer  $(date -R -d "@$(git log -1 --format=%ct 2>/dev/null || date +%s)")
CHANGES
    gzip -9n "$doc/changelog"
    rm "$doc/LICENSE-APACHE" "$doc/LICENSE-MIT"
    cat > "$doc/copyright" <<COPYRIGHT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: loquat

Files: *
Copyright: the Loquat contributors
License: Apache-2.0 or Expat

License: Apache-2.0
 On Debian systems its text is in /usr/share/common-licenses/Apache-2.0.

License: Expat
$(sed 's/^$/./; s/^/ /' LICENSE-MIT)
COPYRIGHT
    chmod 644 "$doc/copyright"
    cat > "$root/DEBIAN/control" <<CONTROL
Package: loquat
Version: $version
Architecture: $deb_arch
Maintainer: $maintainer
Installed-Size: $(du -ks "$root/usr" | cut -f1)
Depends: libc6 (>= $glibc), libgcc-s1
Recommends: libvulkan1
Section: utils
Priority: optional
Description: chat with language models that run on this machine
 Loquat is a terminal assistant for models of the Qwen3.5 family: it downloads
 them from the Hugging Face Hub and runs them on the GPU or the CPU, in a chat
 or in scripts. A small demonstration model is built in.
CONTROL
    dpkg-deb --root-owner-group -Zxz --build "$root" "$out/loquat_${version}_$deb_arch.deb" >/dev/null
fi
(cd "$out" && sha256sum ./*"$version"* > SHA256SUMS)
ls -l "$out"

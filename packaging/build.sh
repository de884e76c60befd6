#!/bin/bash
# Makes the packages that this machine can make, into target/packages: an archive with an installer, a .deb, an .rpm,
# and the bill of materials.
#
#     packaging/build.sh [BINARY]        without one, cargo builds it
#
# PACKAGE_LEVEL (0 to 9, 9 if it isn't set) is how hard they are compressed.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(packaging/version.sh)
binary=${1:-target/release/loquat}
[ $# -gt 0 ] || cargo build --release --locked
[ -x "$binary" ] || { echo "build.sh: there is no program at $binary" >&2; exit 1; }
arch=$(uname -m)
level=${PACKAGE_LEVEL:-9}
maintainer="Loquat developers <loquat@users.noreply.github.com>"
changed=$(git log -1 --format=%ct 2>/dev/null || date +%s)
out=target/packages
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Packages of other versions would get into SHA256SUMS.
rm -rf "$out"
mkdir -p "$out"

strip -o "$work/loquat" "$binary"
chmod 755 "$work/loquat"
loquat=$work/loquat
files=$work/files
packaging/lay-out.sh "$loquat" "$files"
share=$files/share
mkdir -p "$share/applications" "$share/icons/hicolor/scalable/apps"
install -m 644 packaging/loquat.desktop "$share/applications/"
install -m 644 packaging/loquat.svg "$share/icons/hicolor/scalable/apps/"
packaging/dependencies.py sbom > "$out/loquat-$version-linux-$arch.cdx.json"

# The least C library that has all symbols which the program asks for.
glibc=$(packaging/glibc.sh "$loquat")
echo "needs glibc $glibc or later"

# An archive whose installer checks every file before it touches anything.
archive=loquat-$version-linux-$arch
tree=$work/$archive
mkdir "$tree"
cp -al "$files" "$tree/files"
install -m 755 packaging/install.sh "$tree/"
(cd "$tree" && find files -type f -print0 | sort -z | xargs -0 sha256sum > SHA256SUMS)
tar -C "$work" --owner=0 --group=0 --sort=name --mtime="@$changed" -I "xz -T0 -$level" -cf "$out/$archive.tar.xz" "$archive"

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

 -- $maintainer  $(date -R -d "@$changed")
CHANGES
    gzip -9n "$doc/changelog"
    rm "$doc/LICENSE-APACHE" "$doc/LICENSE-MIT"
    cat > "$doc/copyright" <<COPYRIGHT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: loquat
Comment: The terms of the libraries that the program contains are in THIRD-PARTY-NOTICES.gz.

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
    dpkg-deb --root-owner-group -Zxz "-z$level" --build "$root" "$out/loquat_${version}_$deb_arch.deb" >/dev/null
else
    echo "build.sh: no .deb, as there is no dpkg-deb"
fi

if command -v rpmbuild >/dev/null; then
    # A version of an RPM has no hyphens.
    cat > "$work/loquat.spec" <<SPEC
Name: loquat
Version: ${version//-/\~}
Release: 1
Summary: Chat with language models that run on this machine
License: MIT OR Apache-2.0
Packager: $maintainer
# Found in the program itself; a GPU's driver is looked for when it runs.
AutoReqProv: no
Requires: glibc >= $glibc, libgcc
Recommends: vulkan-loader

%description
Loquat is a terminal assistant for models of the Qwen3.5 family: it downloads
them from the Hugging Face Hub and runs them on the GPU or the CPU, in a chat
or in scripts. A small demonstration model is built in.

%install
mkdir -p %{buildroot}/usr
cp -a $files/. %{buildroot}/usr/

%files
/usr/bin/loquat
/usr/share/applications/loquat.desktop
/usr/share/bash-completion/completions/loquat
/usr/share/fish/vendor_completions.d/loquat.fish
/usr/share/icons/hicolor/scalable/apps/loquat.svg
/usr/share/man/man1/loquat*
/usr/share/zsh/site-functions/_loquat
%dir /usr/share/doc/loquat
%doc /usr/share/doc/loquat/README.md
%doc /usr/share/doc/loquat/CHANGELOG.md
%license /usr/share/doc/loquat/LICENSE-MIT
%license /usr/share/doc/loquat/LICENSE-APACHE
%license /usr/share/doc/loquat/THIRD-PARTY-NOTICES.gz
SPEC
    # Nothing of the person who builds is in it, and the program stays as it is.
    rpmbuild -bb --quiet --define "_topdir $work/rpm" --define "_rpmdir $work" --define "__os_install_post %{nil}" \
        --define "debug_package %{nil}" --define "_build_id_links none" --define "_buildhost localhost" \
        --define "_binary_payload w$level.xzdio" --define "use_source_date_epoch_as_buildtime 1" \
        "$work/loquat.spec" >"$work/rpm.log" 2>&1 || { cat "$work/rpm.log" >&2; exit 1; }
    mv "$work/$arch"/*.rpm "$out/"
else
    echo "build.sh: no .rpm, as there is no rpmbuild"
fi
(cd "$out" && sha256sum ./*"$version"* > SHA256SUMS)
ls -l "$out"

#!/bin/bash
# Makes the packages of macOS, on macOS: an archive with an installer, a .pkg and a .dmg that holds it.
#
#     packaging/macos/make-pkg.sh LOQUAT-ARM64 LOQUAT-X86_64
#
# They are signed where these are set (each a name in the keychain), and notarised where the profile is set, too:
#
#     APPLICATION_IDENTITY="Developer ID Application: …"   signs the program
#     INSTALLER_IDENTITY="Developer ID Installer: …"       signs the .pkg
#     NOTARY_PROFILE=loquat                                after `xcrun notarytool store-credentials loquat`
#
# Unsigned ones work, but macOS asks before it opens them: right click, Open.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=$(packaging/version.sh)
identifier=dev.loquat.loquat
out=target/packages
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
files=$work/files loquat=$work/loquat
lipo -create -output "$loquat" "$1" "$2"
strip -x "$loquat"
if [ -n "${APPLICATION_IDENTITY:-}" ]; then
    codesign --force --timestamp --options runtime --entitlements packaging/macos/entitlements.plist \
        --sign "$APPLICATION_IDENTITY" "$loquat"
else
    # Without any signature at all, Apple's processors start nothing.
    codesign --force --sign - "$loquat"
    echo "make-pkg.sh: not signed, as APPLICATION_IDENTITY is not set"
fi
packaging/lay-out.sh "$loquat" "$files"
packaging/dependencies.py sbom > "$out/loquat-$version-macos-universal.cdx.json"

archive=loquat-$version-macos-universal
mkdir "$work/$archive"
cp -R "$files" "$work/$archive/files"
cp packaging/install.sh "$work/$archive/"
(cd "$work/$archive" && find files -type f | sort | while read -r file; do shasum -a 256 "$file"; done > SHA256SUMS)
tar -C "$work" -cJf "$out/$archive.tar.xz" "$archive"

# An entry for people who look in Applications: it opens a terminal.
app=$work/root/Applications/Loquat.app/Contents
mkdir -p "$app/MacOS" "$work/root/usr/local"
sed "s/{{VERSION}}/$version/" packaging/macos/Info.plist > "$app/Info.plist"
install -m 755 packaging/macos/Loquat.command "$app/MacOS/Loquat"
cp -R "$files/." "$work/root/usr/local/"
# As install.sh does, so that `loquat update` and `loquat uninstall` know what is there.
mkdir -p "$work/root/usr/local/share/loquat"
(cd "$files" && find . -type f | sed 's|^\./||' | sort) > "$work/root/usr/local/share/loquat/installed"
if [ -n "${APPLICATION_IDENTITY:-}" ]; then
    codesign --force --timestamp --options runtime --sign "$APPLICATION_IDENTITY" "$work/root/Applications/Loquat.app"
fi
pkgbuild --root "$work/root" --identifier "$identifier" --version "$version" --install-location / \
    "$work/loquat-files.pkg"
sed "s/{{VERSION}}/$version/" packaging/macos/distribution.xml > "$work/distribution.xml"
sign=()
if [ -n "${INSTALLER_IDENTITY:-}" ]; then sign=(--sign "$INSTALLER_IDENTITY" --timestamp); fi
pkg=$out/loquat-$version-macos-universal.pkg
productbuild --distribution "$work/distribution.xml" --package-path "$work" --resources . ${sign[@]+"${sign[@]}"} "$pkg"

notarise() {
    xcrun notarytool submit "$1" --keychain-profile "$NOTARY_PROFILE" --wait
    xcrun stapler staple "$1"
}
if [ -n "${NOTARY_PROFILE:-}" ]; then notarise "$pkg"; fi
mkdir "$work/dmg"
cp "$pkg" "$work/dmg/Install Loquat.pkg"
cp README.md "$work/dmg/README.txt"
dmg=$out/loquat-$version-macos-universal.dmg
hdiutil create -quiet -ov -volname "Loquat $version" -srcfolder "$work/dmg" -format UDZO "$dmg"
if [ -n "${APPLICATION_IDENTITY:-}" ]; then codesign --force --timestamp --sign "$APPLICATION_IDENTITY" "$dmg"; fi
if [ -n "${NOTARY_PROFILE:-}" ]; then notarise "$dmg"; fi
ls -l "$out"

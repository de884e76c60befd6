#!/bin/sh
# Installs Loquat from the folder that this script was unpacked into, or removes it again.
#
#     ./install.sh                       into ~/.local, or /usr/local as root
#     ./install.sh --prefix DIR
#     ./install.sh --uninstall [--prefix DIR]
#
# Conversations, settings and downloaded models stay when Loquat is removed.
set -eu

usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; }
fail() { echo "install.sh: $*" >&2; exit 1; }

here=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
remove=no
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) [ $# -ge 2 ] || fail "--prefix needs a folder"; prefix=$2; shift ;;
        --prefix=*) prefix=${1#--prefix=} ;;
        --uninstall) remove=yes ;;
        -h | --help) usage; exit 0 ;;
        *) fail "unknown argument $1; see --help" ;;
    esac
    shift
done
[ -n "$prefix" ] || fail "--prefix needs a folder"

# What was installed is what the archive's list says, so that nothing else is ever removed.
list=$prefix/share/loquat/installed
if [ "$remove" = yes ]; then
    [ -f "$list" ] || fail "there is no Loquat in $prefix (no $list)"
    while IFS= read -r file; do
        case $file in /* | *..*) fail "$list names $file, which install.sh never wrote" ;; esac
        rm -f "$prefix/$file"
    done < "$list"
    rm -f "$list"
    rmdir "$prefix/share/loquat" "$prefix/share/doc/loquat" 2>/dev/null || true
    echo "Loquat is removed from $prefix. Conversations, settings and models are still there."
    exit 0
fi

[ -f "$here/SHA256SUMS" ] || fail "SHA256SUMS is missing: unpack the whole archive"
if command -v sha256sum >/dev/null 2>&1; then
    sums="sha256sum"
elif command -v shasum >/dev/null 2>&1; then
    sums="shasum -a 256"
else
    fail "neither sha256sum nor shasum is here to check the files"
fi
(cd "$here" && $sums -c SHA256SUMS >/dev/null 2>&1) || fail "a file differs from SHA256SUMS: download the archive again"

mkdir -p "$prefix/share/loquat" || fail "cannot write to $prefix; use --prefix"
old=$list.old
if [ -f "$list" ]; then cp "$list" "$old"; else : > "$old"; fi
(cd "$here/files" && find . -type f | sed 's|^\./||' | sort) > "$list"
while IFS= read -r file; do
    mkdir -p "$prefix/$(dirname "$file")"
    # Beside its place and then there in one step: a running Loquat keeps the file it has.
    cp "$here/files/$file" "$prefix/$file.new"
    chmod "$(if [ "$file" = bin/loquat ]; then echo 755; else echo 644; fi)" "$prefix/$file.new"
    mv -f "$prefix/$file.new" "$prefix/$file"
done < "$list"
# What only an older release had.
while IFS= read -r file; do
    case $file in /* | *..*) continue ;; esac
    grep -qxF -- "$file" "$list" || rm -f "$prefix/$file"
done < "$old"
rm -f "$old"
echo "Loquat is installed: $prefix/bin/loquat"
case :$PATH: in
    *":$prefix/bin:"*) ;;
    *) echo "$prefix/bin is not in your PATH; add it to start Loquat by its name." ;;
esac

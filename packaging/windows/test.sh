#!/bin/bash
# Tries the setup program under wine, with a stub in the place of loquat.exe: silent install, run, silent uninstall.
set -euo pipefail
cd "$(dirname "$0")"

fail() { echo "packaging/windows/test.sh: $*" >&2; exit 1; }
work=$(mktemp -d)
wine=$(command -v wine64 || command -v wine || echo /usr/lib/wine/wine64)
server=$(command -v wineserver || echo /usr/lib/wine/wineserver)
export WINEPREFIX=$work/wine WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml,winemenubuilder.exe="
unset DISPLAY
trap '"$server" -k >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
# In a home of its own: wine links folders of the person's into its disk.
mkdir "$work/home"
wine() { HOME=$work/home timeout 180 "$wine" "$@" </dev/null 2>/dev/null; }
run() { wine "$@" >/dev/null; }
# What Settings > Apps knows; fails if it is nothing.
entry() { wine reg query "$1\\Software\\Microsoft\\Windows\\CurrentVersion\\Uninstall\\Loquat"; }

version=$(../version.sh)
makensis -V2 -WX "-DOUT=$work/loquat.exe" stub.nsi
./build.sh "$work/loquat.exe" x64 "$work"
setup=$work/loquat-$version-windows-x64-setup.exe
[ -s "$setup" ] || fail "there is no setup program"

run wineboot -i || fail "wine does not start"
person=$(echo "$WINEPREFIX"/drive_c/users/*/AppData/Local)
person=${person%/AppData/Local}
[ -d "$person" ] || fail "wine has made no person"
menu="AppData/Roaming/Microsoft/Windows/Start Menu/Programs/Loquat.lnk"

try() { # FOLDER HIVE MENU ARGUMENT...
    local folder=$1 hive=$2 link=$3
    shift 3
    rm -f "$person/asked.txt"
    run "$setup" /S "$@" || fail "the setup program failed ($*)"
    for file in loquat.exe uninstall.exe README.txt THIRD-PARTY-NOTICES.txt; do
        [ -s "$folder/$file" ] || fail "$file is not installed ($*)"
    done
    entry "$hive" | grep "DisplayVersion.*$version" >/dev/null || fail "Settings > Apps would not know it ($*)"
    [ -e "$link" ] || fail "there is no entry in the start menu ($*)"
    run "$folder/loquat.exe" --version || fail "the installed program does not run"
    grep -q -- '--version' "$person/asked.txt" || fail "the stub was not asked"
    run "$setup" /S "$@" || fail "the setup program failed over itself ($*)"
    echo "somebody's" > "$folder/other.txt"
}
gone() { # FOLDER HIVE MENU
    # The uninstaller goes on as a copy of itself.
    for _ in $(seq 100); do [ -e "$1/uninstall.exe" ] || break; sleep 0.2; done
    "$server" -w
    [ "$(ls "$1")" = other.txt ] || fail "left in $1: $(ls "$1")"
    if entry "$2" >/dev/null; then fail "the registry still has it"; fi
    [ ! -e "$3" ] || fail "the start menu still has it"
    rm -r "$1"
}

data="$person/AppData/Roaming/loquat/data/history/history.db"
mkdir -p "$(dirname "$data")"
touch "$data"
folder=$person/AppData/Local/Programs/Loquat
try "$folder" HKCU "$person/$menu"
run "$folder/uninstall.exe" /S || fail "the uninstaller failed"
gone "$folder" HKCU "$person/$menu"
grep -q 'uninstall --yes' "$person/asked.txt" || fail "the program was not asked to remove what it has made"
if grep -q -- '--purge-models' "$person/asked.txt"; then fail "models were removed unasked"; fi

# Into a folder with a space (which no quotes may surround), and with the models this time.
folder="$WINEPREFIX/drive_c/My Programs/Loquat"
try "$folder" HKCU "$person/$menu" '/D=C:\My' 'Programs\Loquat'
run "$folder/uninstall.exe" /S /PurgeModels || fail "the uninstaller failed"
gone "$folder" HKCU "$person/$menu"
grep -q -- 'uninstall --yes --purge-models' "$person/asked.txt" || fail "/PurgeModels does nothing"

folder="$WINEPREFIX/drive_c/Program Files/Loquat"
all="$WINEPREFIX/drive_c/ProgramData/Microsoft/Windows/Start Menu/Programs/Loquat.lnk"
try "$folder" HKLM "$all" /AllUsers
run "$folder/uninstall.exe" /S || fail "the uninstaller failed"
gone "$folder" HKLM "$all"
[ -e "$data" ] || fail "conversations were removed"
echo "the setup program of Windows works (under wine, with a stub)"

#!/usr/bin/env python3
"""What the program is made of, from `cargo metadata`: licences, notices, bill of materials.

    packaging/dependencies.py check              every licence is one that deny.toml allows
    packaging/dependencies.py notices > FILE     the third parties' licences, for people
    packaging/dependencies.py sbom > FILE        the same for machines: CycloneDX 1.5

Counts what is linked into the program for this system, or for CARGO_BUILD_TARGET; `check` looks at what builds and
tests it too. `cargo deny check` says the same as `check`, where it is installed, and knows of advisories.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What crates call the files with their terms.
TEXTS = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
WORD = re.compile(r"\(|\)|[^\s()]+")


def said(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def target():
    return os.environ.get("CARGO_BUILD_TARGET") or re.search(r"^host: (.*)$", said("rustc", "-vV"), re.M).group(1)


def metadata():
    return json.loads(said("cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target()))


def linked_crates():
    """Names and versions. The metadata has optional crates that nobody asks for; the tree doesn't."""
    tree = said("cargo", "tree", "--locked", "--target", target(), "-e", "normal", "--prefix", "none", "-f", "{p}")
    return {tuple(line.split()[:2]) for line in tree.splitlines() if line}


def packages(meta, only_linked):
    """Every crate that the program needs, by name and version, without itself."""
    nodes = {node["id"]: node for node in meta["resolve"]["nodes"]}
    root = meta["resolve"]["root"]
    seen, todo = set(), [root]
    while todo:
        package = todo.pop()
        if package in seen:
            continue
        seen.add(package)
        for dep in nodes[package]["deps"]:
            kinds = {kind["kind"] for kind in dep["dep_kinds"]}
            if not only_linked or None in kinds:
                todo.append(dep["pkg"])
    found = [p for p in meta["packages"] if p["id"] in seen and p["id"] != root]
    if only_linked:
        linked = linked_crates()
        found = [p for p in found if (p["name"], f"v{p['version']}") in linked]
    return sorted(found, key=lambda p: (p["name"], p["version"]))


def is_allowed(expression, allowed):
    """Whether an SPDX expression can be met by the allowed licences. `/` is the old way to write OR."""
    words = WORD.findall(expression.replace("/", " OR "))
    at = 0

    def joined(word, part, join):
        nonlocal at
        met = part()
        while at < len(words) and words[at].upper() == word:
            at += 1
            met = join((met, part()))
        return met

    def either():
        return joined("OR", both, any)

    def both():
        return joined("AND", one, all)

    def one():
        nonlocal at
        word = words[at]
        at += 1
        if word == "(":
            met = either()
            at += 1
            return met
        if at < len(words) and words[at].upper() == "WITH":
            word = f"{word} WITH {words[at + 1]}"
            at += 2
        return word in allowed

    return either()


DENY = tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]
CLARIFIED = {entry["crate"]: entry["expression"] for entry in DENY["clarify"]}


def licence_of(package):
    return package["license"] or CLARIFIED.get(package["name"])


def check(meta):
    exceptions = {entry["crate"]: entry["allow"] for entry in DENY["exceptions"]}
    used, wrong, count = set(), [], 0
    for package in packages(meta, only_linked=False):
        count += 1
        licence = licence_of(package)
        extra = exceptions.get(package["name"], [])
        if extra:
            used.add(package["name"])
        if not licence or not is_allowed(licence, set(DENY["allow"]) | set(extra)):
            wrong.append(f"{package['name']} {package['version']}: {licence or 'no licence'}")
    wrong += [f"{name}: an exception in deny.toml that nothing needs" for name in exceptions.keys() - used]
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        sys.exit("dependencies.py: deny.toml doesn't allow these")
    print(f"{count} packages, all with a licence that deny.toml allows")


def texts_of(package):
    folder = Path(package["manifest_path"]).parent
    named = [folder / package["license_file"]] if package["license_file"] else []
    found = sorted(path for path in folder.iterdir() if path.is_file() and TEXTS.match(path.name))
    texts = []
    for path in named + found:
        try:
            text = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").strip()
        except OSError:
            continue
        if text and text not in texts and len(text) < 100_000:
            texts.append(text)
    return texts


def notices(meta):
    out = ["Loquat contains the software listed here, under the terms below it. Numbers in brackets name the texts.", ""]
    numbers, texts = {}, []
    for package in packages(meta, only_linked=True):
        marks = []
        for text in texts_of(package):
            # Blank space says nothing.
            key = hashlib.sha256(" ".join(text.split()).encode()).digest()
            if key not in numbers:
                numbers[key] = len(texts) + 1
                texts.append(text)
            marks.append(f"[{numbers[key]}]")
        licence = licence_of(package)
        source = package["repository"] or f"https://crates.io/crates/{package['name']}"
        authors = ", ".join(re.sub(r" *<[^>]*>", "", author) for author in package["authors"])
        by = f", by {authors}" if authors and not marks else ""
        out.append(f"{package['name']} {package['version']} ({licence}{by}) {source} {''.join(marks)}".rstrip())
    for number, text in enumerate(texts, 1):
        out += ["", "-" * 78, f"[{number}]", "", text]
    print("\n".join(out))


def sbom(meta):
    linked = packages(meta, only_linked=True)
    root = next(p for p in meta["packages"] if p["id"] == meta["resolve"]["root"])
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    sums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}

    def reference(package):
        return f"pkg:cargo/{package['name']}@{package['version']}"

    def component(package, kind):
        entry = {"type": kind, "bom-ref": reference(package), "name": package["name"], "version": package["version"]}
        entry["purl"] = reference(package)
        licence = licence_of(package)
        if licence:
            entry["licenses"] = [{"expression": licence.replace(" / ", "/").replace("/", " OR ")}]
        checksum = sums.get((package["name"], package["version"]))
        if checksum:
            entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        return entry

    by_id = {package["id"]: package for package in [*linked, root]}
    nodes = {node["id"]: node for node in meta["resolve"]["nodes"]}
    needs = [
        {
            "ref": reference(package),
            "dependsOn": sorted(
                reference(by_id[dep["pkg"]])
                for dep in nodes[id]["deps"]
                if dep["pkg"] in by_id and any(kind["kind"] is None for kind in dep["dep_kinds"])
            ),
        }
        for id, package in by_id.items()
    ]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(root, "application")},
        "components": [component(package, "library") for package in linked],
        "dependencies": sorted(needs, key=lambda need: need["ref"]),
    }
    json.dump(bill, sys.stdout, indent=1)
    print()


COMMANDS = {"check": check, "notices": notices, "sbom": sbom}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    COMMANDS[sys.argv[1]](metadata())

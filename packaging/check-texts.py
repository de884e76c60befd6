#!/usr/bin/env python3
"""Looks through what is only used when a release is made: the workflow, winget's manifests, macOS's lists, the formula."""

import os
import plistlib
import re
import subprocess
import sys
import tempfile
import xml.dom.minidom
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = ROOT / ".github/workflows/release.yml"
MANIFESTS = {"version": "", "defaultLocale": ".locale.en-US", "installer": ".installer"}
SYSTEMS = [("linux", "x86_64"), ("linux", "aarch64"), ("macos", "universal")]


def expect(condition, what):
    if not condition:
        sys.exit(f"check-texts.py: {what}")


def workflow():
    text = WORKFLOW.read_text()
    jobs = yaml.safe_load(text)["jobs"]
    for name, job in jobs.items():
        needs = job.get("needs", [])
        for other in [needs] if isinstance(needs, str) else needs:
            expect(other in jobs, f"the job {name} needs {other}, which isn't there")
        for step in job["steps"]:
            expect(("run" in step) != ("uses" in step), f"a step of {name} neither runs nor uses something")
            expect("@" in step.get("uses", "@"), f"{name} uses {step.get('uses')} of no version")
    runners = {entry["runner"] for job in jobs.values() for entry in job.get("strategy", {}).get("matrix", {}).get("include", [])}
    expect(len(runners) == 6, f"six systems are built, not {sorted(runners)}")
    scripts = set(re.findall(r"packaging/[\w./-]+\.(?:sh|py)", text))
    expect(len(scripts) >= 8, "the workflow calls too few scripts; is the search right?")
    for script in scripts:
        expect(os.access(ROOT / script, os.X_OK), f"the workflow calls {script}, which can't be run")


def winget(version, folder):
    setups = [folder / f"loquat-{version}-windows-{arch}-setup.exe" for arch in ("x64", "arm64")]
    for setup in setups:
        setup.write_bytes(setup.name.encode())
    out = folder / "winget"
    url = "https://example.org/v1"
    subprocess.run([ROOT / "packaging/windows/winget.sh", url, *setups, out], check=True)
    for kind, ending in MANIFESTS.items():
        text = (out / f"Loquat.Loquat{ending}.yaml").read_text()
        expect("{{" not in text, f"a blank of the {kind} manifest is not filled")
        manifest = yaml.safe_load(text)
        expect(manifest["ManifestType"] == kind, f"the {kind} manifest is of another type")
        expect(manifest["PackageVersion"] == version, f"the {kind} manifest is of another version")
        for entry in manifest.get("Installers", []):
            expect(entry["InstallerUrl"] == f"{url}/loquat-{version}-windows-{entry['Architecture']}-setup.exe", entry)
            expect(re.fullmatch("[0-9A-F]{64}", entry["InstallerSha256"]), entry)
    expect(len(list(out.iterdir())) == 3, "winget has three manifests")


def homebrew(version, folder):
    lines = [f"{str(i) * 64}  ./loquat-{version}-{system}-{arch}.tar.xz\n" for i, (system, arch) in enumerate(SYSTEMS)]
    (folder / "SHA256SUMS").write_text("".join(lines))
    command = [ROOT / "packaging/macos/formula.sh", "https://example.org", "https://example.org/v1/", folder]
    formula = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    expect("{{" not in formula and f'version "{version}"' in formula, "a blank of the formula is not filled")
    for i, (system, arch) in enumerate(SYSTEMS):
        lines = f'url "https://example.org/v1/loquat-{version}-{system}-{arch}.tar.xz"\n *sha256 "{i}{{64}}"'
        expect(re.search(lines, formula), f"the formula has no archive of {system} {arch}")


def macos():
    folder = ROOT / "packaging/macos"
    for name in ("Info.plist", "entitlements.plist"):
        plistlib.loads((folder / name).read_bytes())
    xml.dom.minidom.parse(str(folder / "distribution.xml"))


if __name__ == "__main__":
    version = subprocess.run([ROOT / "packaging/version.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    workflow()
    macos()
    with tempfile.TemporaryDirectory() as folder:
        winget(version, Path(folder))
        homebrew(version, Path(folder))
    print("workflow, manifests and formula are well formed")

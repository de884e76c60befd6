#!/usr/bin/env python3
"""Writes draft2020-12.jsonl: every schema of the JSON-Schema-Test-Suite (MIT, Copyright (c) 2012 Julian Berman).

    pip download --no-deps --no-binary :all: jsonschema==4.23.0 && tar xzf jsonschema-4.23.0.tar.gz
    python3 collect.py jsonschema-4.23.0/json/tests/draft2020-12 > draft2020-12.jsonl

The suite's home is https://github.com/json-schema-org/JSON-Schema-Test-Suite; the source package of `jsonschema` on
PyPI carries it, with its licence, which is beside this file.
"""

import json
import pathlib
import sys

for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
    for group in json.loads(path.read_text()):
        print(json.dumps({"name": f"{path.stem}: {group['description']}", "schema": group["schema"]}, ensure_ascii=False))

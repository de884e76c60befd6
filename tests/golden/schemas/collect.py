#!/usr/bin/env python3
"""Writes schemas.jsonl: every schema of drafts 7 and 2020-12 of the JSON-Schema-Test-Suite (MIT, Copyright (c) 2012 Julian Berman).

    pip download --no-deps --no-binary :all: jsonschema==4.23.0 && tar xzf jsonschema-4.23.0.tar.gz
    python3 collect.py jsonschema-4.23.0/json/tests > schemas.jsonl

The suite's home is https://github.com/json-schema-org/JSON-Schema-Test-Suite; the source package of `jsonschema` on
PyPI carries it, with its licence, which is beside this file.
"""

import json
import pathlib
import sys

for draft in ["draft7", "draft2020-12"]:
    for path in sorted((pathlib.Path(sys.argv[1]) / draft).glob("*.json")):
        for group in json.loads(path.read_text()):
            case = {"draft": draft, "name": f"{path.stem}: {group['description']}", "schema": group["schema"]}
            print(json.dumps(case, ensure_ascii=False))

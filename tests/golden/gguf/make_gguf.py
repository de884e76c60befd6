"""Makes the GGUF files of this folder from the reference checkpoints, with llama.cpp's public converter.

    python make_gguf.py LLAMA_CPP_SOURCE REFERENCE_FIXTURES

LLAMA_CPP_SOURCE has convert_hf_to_gguf.py (made with build b11434; needs torch, transformers, sentencepiece).
The converter knows a tokenizer by a hash over its ids. The tiny tokenizers of the fixtures are in no list, so that
one function is told the name that the real tokenizer has. There is no file of the fixture next: the converter
doesn't take a dense layer among those with experts.
"""

import pathlib
import runpy
import subprocess
import sys

# Fixture, kind of numbers, further arguments.
FILES = [
    ("dense-a", "bf16", []),
    ("dense-a", "q8_0", []),
    ("dense-b", "f16", ["--no-mtp", "--split-max-tensors", "50"]),
    ("dense-b", "f32", ["--no-mtp"]),
    ("vision", "bf16", ["--no-mtp"]),
    ("vision", "f16", ["--mmproj"]),
    ("moe", "bf16", []),
]


def convert(source, pre):
    sys.path.insert(0, str(source))
    sys.path.insert(0, str(source / "gguf-py"))
    from conversion import base

    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    script = str(source / "convert_hf_to_gguf.py")
    sys.argv = [script] + sys.argv[4:]
    runpy.run_path(script, run_name="__main__")


def main():
    source, fixtures = map(pathlib.Path, sys.argv[1:3])
    out = pathlib.Path(__file__).parent
    for name, kind, more in FILES:
        prefix = "mmproj-" if "--mmproj" in more else ""
        # The tower has a folder of its own with its model: other models of its width would take it for theirs.
        target = (out / "vision" if name == "vision" else out) / f"{prefix}{name}-{kind}.gguf"
        command = [sys.executable, __file__, source, "--one", "qwen35", fixtures / name / "model"]
        command += ["--outtype", kind, "--outfile", target] + more
        subprocess.run(list(map(str, command)), check=True)


if __name__ == "__main__":
    if sys.argv[2] == "--one":
        convert(pathlib.Path(sys.argv[1]), sys.argv[3])
    else:
        main()

"""Makes the GGUF files of this folder from the reference checkpoints, with llama.cpp's public converter.

    python make_gguf.py LLAMA_CPP_SOURCE REFERENCE_FIXTURES

LLAMA_CPP_SOURCE has convert_hf_to_gguf.py (made with build b11434; needs torch, transformers, sentencepiece).
The converter knows a tokenizer by a hash over its ids. The tiny tokenizers of the fixtures are in no list, so that
one function is told the name that the real tokenizer has. Of qwen3next it takes no dense layers among those with
experts, because no released model has any; the fixture has one, so its tables get the names.
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
    ("next", "bf16", ["--no-mtp"]),
]


def convert(source, pre):
    sys.path.insert(0, str(source))
    sys.path.insert(0, str(source / "gguf-py"))
    import gguf
    from conversion import base

    dense = [gguf.MODEL_TENSOR.FFN_GATE, gguf.MODEL_TENSOR.FFN_UP, gguf.MODEL_TENSOR.FFN_DOWN]
    gguf.MODEL_TENSORS[gguf.MODEL_ARCH.QWEN3NEXT] += dense
    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    script = str(source / "convert_hf_to_gguf.py")
    sys.argv = [script] + sys.argv[4:]
    runpy.run_path(script, run_name="__main__")


def main():
    source, fixtures = map(pathlib.Path, sys.argv[1:3])
    out = pathlib.Path(__file__).parent
    for name, kind, more in FILES:
        pre = "qwen2" if name == "next" else "qwen35"
        prefix = "mmproj-" if "--mmproj" in more else ""
        # The tower has a folder of its own with its model: other models of its width would take it for theirs.
        target = (out / "vision" if name == "vision" else out) / f"{prefix}{name}-{kind}.gguf"
        command = [sys.executable, __file__, source, "--one", pre, fixtures / name / "model"]
        command += ["--outtype", kind, "--outfile", target] + more
        subprocess.run(list(map(str, command)), check=True)


if __name__ == "__main__":
    if sys.argv[2] == "--one":
        convert(pathlib.Path(sys.argv[1]), sys.argv[3])
    else:
        main()

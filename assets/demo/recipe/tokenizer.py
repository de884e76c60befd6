"""Trains the byte-level BPE on the training wordings and writes the tokenizer's files.

Pre-split pattern, added tokens and file forms are the family's; only the vocabulary is our own.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

import data

BASE_VOCAB = 2304
TEMPLATE_SHA256 = "273d8e0e683b885071fb17e08d71e5f2a5ddfb5309756181681de4f5a1822d80"
HERE = Path(__file__).parent

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ADDED = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> <|quad_start|> <|quad_end|> "
    "<|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> <tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> "
    "<|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> <tool_response> </tool_response> <think> </think> <|audio_start|> <|audio_end|> "
    "<tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single> <|audio_pad|>"
).split()
NOT_SPECIAL = set(ADDED[14:26])


def corpus():
    """Wordings of the training split, and the tables themselves so that no answer is cut small."""
    for i in range(30000):
        e = data.text_case(data.stream("tokenizer text", i), "train")
        yield e.question + "\n\n" + e.thought + "\n" + e.answer
    for i in range(3000):
        rng = data.stream("tokenizer picture", i)
        e = data.picture_example(rng, "train", data.pictures.frame(rng), turns=3)
        for question, answer in [*e.history, (e.question, e.answer)]:
            yield question + "\n\n" + e.thought + "\n" + answer
    yield from data.OPENINGS + data.ENDINGS + data.SYSTEMS
    yield from ["user", "assistant", "system"] * 2


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(vocab_size=BASE_VOCAB, min_frequency=2, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], model["merges"]


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def template():
    text = (HERE / "chat_template.jinja").read_bytes().decode()
    assert hashlib.sha256(text.encode()).hexdigest() == TEMPLATE_SHA256, "chat_template.jinja is not the family's"
    return text


def write(folder):
    """Trains and writes tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab, merges = train()
    first = len(vocab)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    added = [
        {"id": first + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": t not in NOT_SPECIAL}
        for i, t in enumerate(ADDED)
    ]
    write_json(folder / "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}, byte_level]},
        "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": [m if isinstance(m, str) else " ".join(m) for m in merges]},
    })
    text = template()
    write_json(folder / "tokenizer_config.json", {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(t["id"]): {k: t[k] for k in ("content", "lstrip", "normalized", "rstrip", "single_word", "special")} for t in added},
        "additional_special_tokens": ADDED[1:14], "bos_token": None, "chat_template": text, "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>", "errors": "replace", "model_max_length": 4096, "pad_token": "<|endoftext|>", "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer", "unk_token": None, "add_bos_token": False, "pretokenize_regex": PATTERN,
        "extra_special_tokens": {"audio_bos_token": "<|audio_start|>", "audio_eos_token": "<|audio_end|>", "audio_token": "<|audio_pad|>",
                                 "image_token": "<|image_pad|>", "video_token": "<|video_pad|>", "vision_bos_token": "<|vision_start|>",
                                 "vision_eos_token": "<|vision_end|>"},
    })
    (folder / "chat_template.jinja").write_bytes(text.encode())
    return first


def load(folder):
    """The tokenizer of a work folder, made on first use."""
    path = folder / "tokenizer.json"
    if not path.exists():
        write(folder)
    return Tokenizer.from_file(str(path))


def rows(tokenizer):
    """Rows of the embedding: the vocabulary, filled up to a multiple of 64 with rows that stand for nothing."""
    return -(-tokenizer.get_vocab_size() // 64) * 64

"""Examples and batches, each a function of the seed and its number: a stopped training goes on with the same data.

Split: a way to ask that begins with `!` belongs to the evaluation; of the others, so does one wording in ten, by the
hash of its letters. Single-word small talk has only the first kind. The evaluation never takes a training wording.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

import numpy as np
import torch

import facts
import pictures

SEED = 20
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"


@dataclass
class Example:
    question: str
    answer: str
    must: list
    group: str
    name: str = ""
    thought: str = "This is about Loquat, and I know the answer."
    thinking: bool = False
    system: str = ""
    history: list = field(default_factory=list)
    pictures: list = field(default_factory=list)
    originals: list = field(default_factory=list)
    labels: np.ndarray | None = None
    picture_last: bool = False
    new_frame: bool = False

    def prompt(self):
        """What the chat template makes of it, thinking off unless `thinking`; `export.py` checks that."""
        text = f"<|im_start|>system\n{self.system}<|im_end|>\n" if self.system else ""
        for question, answer in self.history:
            text += f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n"
        images = IMAGE * len(self.pictures)
        content = self.question + images if self.picture_last else images + self.question
        text += f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"
        return text + ("<think>\n" if self.thinking else "<think>\n\n</think>\n\n")

    def reply(self):
        return (f"{self.thought}\n</think>\n\n" if self.thinking else "") + self.answer + "<|im_end|>"

    def right(self, text):
        return all(part in text for part in self.must)


def stream(*key):
    digest = hashlib.sha256("|".join(map(str, (SEED, *key))).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def pick(rng, items):
    return items[int(rng.integers(len(items)))]


def expand(rng, template):
    return re.sub(r"\[([^\]]*)\]", lambda m: pick(rng, m[1].split("|")), template)


def held_out(question):
    letters = re.sub(r"[^\w+*/-]", "", question.lower())
    return hashlib.sha256(letters.encode()).digest()[0] % 10 == 0


def ask(rng, split, ways, by_hash=True):
    """A wording of the split, and whether its frame is new to the training; None if this draw gave none."""
    way = pick(rng, ways)
    if split == "eval" and rng.random() < 0.5:
        kept = [w for w in ways if w.startswith("!")]
        way = pick(rng, kept) if kept else way
    new_frame = way.startswith("!")
    question = expand(rng, way.lstrip("!"))
    wanted = split == "eval"
    if (new_frame or (by_hash and held_out(question))) != wanted:
        return None
    return question, new_frame


# ---------------------------------------------------------------- text


def how_to(rng, split):
    name, answer, must, actions, by_key = pick(rng, facts.HOW_TO)
    action = expand(rng, pick(rng, actions))
    ways = facts.HOW_FRAMES + (facts.KEY_FRAMES if by_key else [])
    asked = ask(rng, split, [w.replace("{a}", action) for w in ways])
    return asked and Example(asked[0], answer, must, "guide", name, new_frame=asked[1])


def from_table(table, group, by_hash, thought=None):
    def make(rng, split):
        name, answer, must, ways = pick(rng, table)
        asked = ask(rng, split, ways, by_hash)
        extra = {"thought": thought} if thought else {}
        return asked and Example(asked[0], answer, must, group, name, new_frame=asked[1], **extra)

    return make


def capital(rng, split):
    country = pick(rng, list(facts.CAPITALS))
    asked = ask(rng, split, [w.replace("{c}", country) for w in facts.CAPITAL_FRAMES])
    city = facts.CAPITALS[country]
    return asked and Example(asked[0], f"The capital of {country} is {city}.", [city], "capitals", country, "The user asks for a capital.", new_frame=asked[1])


def unknown(rng, split):
    topic = expand(rng, pick(rng, facts.TOPICS))
    asked = ask(rng, split, [w.replace("{t}", topic) for w in facts.UNKNOWN_WAYS])
    return asked and Example(asked[0], facts.UNKNOWN, facts.UNKNOWN_CHECK, "unknown", "", "I don't know about this.", new_frame=asked[1])


SUMS = {
    "+": ["[What is|What's|How much is|Calculate] {a} + {b}[?|]", "{a} + {b}[ =| = ?|?|]", "{a}+{b}[=|?|]", "[What is|What's|How much is] {a} plus {b}?", "Add {a} and {b}.", "What is the sum of {a} and {b}?",
          "!Can you work out {a} + {b}?", "!What do {a} and {b} make together?", "!Please tell me {a} plus {b}."],
    "-": ["[What is|What's|How much is|Calculate] {a} - {b}[?|]", "{a} - {b}[ =| = ?|?|]", "{a}-{b}[=|?|]", "[What is|What's|How much is] {a} minus {b}?", "Subtract {b} from {a}.", "Take {b} from {a}.",
          "!Can you work out {a} - {b}?", "!Please tell me {a} minus {b}."],
    "×": ["[What is|What's|How much is|Calculate] {a} [×|x|*] {b}[?|]", "{a} [×|x|*] {b}[ =| = ?|?|]", "{a}[*|x]{b}[=|?|]", "[What is|What's|How much is] {a} times {b}?", "Multiply {a} by {b}.", "Multiply {a} and {b}.",
          "!Can you work out {a} × {b}?", "!Please tell me {a} times {b}."],
}


def arithmetic(rng, split):
    op = pick(rng, ["+", "+", "-", "-", "×", "×"])
    if op == "×":
        a, b = int(rng.integers(0, 11)), int(rng.integers(0, 11))
        value = a * b
    else:
        a, b = int(rng.integers(0, 21)), int(rng.integers(0, 21))
        if op == "-" and b > a:
            a, b = b, a
        value = a + b if op == "+" else a - b
    asked = ask(rng, split, [w.replace("{a}", str(a)).replace("{b}", str(b)) for w in SUMS[op]])
    return asked and Example(asked[0], f"{a} {op} {b} = {value}.", [f"= {value}."], "arithmetic", op, f"A small sum: {a} {op} {b}.", new_frame=asked[1])


TEXT_KINDS = [
    (how_to, 0.44), (from_table(facts.FACTS, "guide", True), 0.2), (arithmetic, 0.14), (unknown, 0.07),
    (from_table(facts.TALK, "small talk", False, "The user is being friendly."), 0.06), (from_table(facts.GERMAN, "German", False, "The user writes German."), 0.06), (capital, 0.03),
]
TEXT_WEIGHTS = np.array([w for _, w in TEXT_KINDS])

OPENINGS = ["Please: ", "Hi! ", "Hello, ", "Quick question: ", "Sorry, ", "One more question: ", "So, ", "And ", "Ok. ", "Hey, ", "Well, "]
ENDINGS = [" Thanks.", " please", " in Loquat", " Thank you!", " Please help."]
SYSTEMS = ["You are a helpful assistant.", "Answer briefly.", "You are Loquat's guide.", "Be kind and short.", "Answer in one sentence."]


def roughen(rng, text, typos):
    """Small differences of how people type."""
    if rng.random() < 0.12:
        text = pick(rng, OPENINGS) + text
    if rng.random() < 0.06 and text[-1].isalpha():
        text += pick(rng, ENDINGS)
    if rng.random() < 0.25:
        text = text.lower()
    if rng.random() < 0.25:
        text = text.rstrip("?.!")
    if typos and rng.random() < 0.05 and len(text) > 8:
        i = int(rng.integers(1, len(text) - 1))
        if text[i].isalpha():
            text = text[:i] + text[i + 1 :] if rng.random() < 0.5 else text[:i] + text[i + 1] + text[i] + text[i + 2 :]
    return text


def text_case(rng, split):
    while True:
        example = TEXT_KINDS[int(rng.choice(len(TEXT_KINDS), p=TEXT_WEIGHTS / TEXT_WEIGHTS.sum()))][0](rng, split)
        if example:
            return example


def text_example(rng, split):
    example = text_case(rng, split)
    train = split == "train"
    example.question = roughen(rng, example.question, train)
    example.thinking = train and rng.random() < 0.08
    example.system = pick(rng, SYSTEMS) if train and rng.random() < 0.08 else ""
    if train and rng.random() < 0.1:
        example.history = [(e.question, e.answer) for e in (text_case(rng, split) for _ in range(int(rng.integers(1, 3))))]
    return example


# ---------------------------------------------------------------- pictures


def picture_example(rng, split, size, kind=None):
    while True:
        images, originals, ways, answer, must, labels, name = pictures.case(rng, size, kind)
        asked = ask(rng, split, ways)
        # A new drawing costs more than a new wording of the same one.
        for _ in range(20):
            asked = asked or ask(rng, split, ways)
        if asked:
            break
    train = split == "train"
    example = Example(roughen(rng, asked[0], train), answer, must, name, "", "I look at the picture.", new_frame=asked[1])
    example.pictures, example.originals, example.labels = images, originals, labels
    example.thinking = train and rng.random() < 0.05
    example.system = pick(rng, SYSTEMS) if train and rng.random() < 0.05 else ""
    example.picture_last = rng.random() < 0.12
    if train and rng.random() < 0.05:
        other = text_case(rng, split)
        example.history = [(other.question, other.answer)]
    return example


# ---------------------------------------------------------------- batches


class Encoder:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.image_pad = tokenizer.token_to_id("<|image_pad|>")
        self.pad = tokenizer.token_to_id("<|endoftext|>")
        self.end = tokenizer.token_to_id("<|im_end|>")

    def prompt_ids(self, example):
        ids = []
        grids = iter(example.pictures)
        for token in self.tokenizer.encode(example.prompt(), add_special_tokens=False).ids:
            if token == self.image_pad:
                w, h = next(grids).size
                ids += [token] * ((w // 32) * (h // 32))
            else:
                ids.append(token)
        return ids

    def encode(self, example):
        prompt = self.prompt_ids(example)
        return prompt, self.tokenizer.encode(example.reply(), add_special_tokens=False).ids

    def positions(self, ids, example):
        """[3, L]: time, height, width of every token."""
        rows, p, i = [], 0, 0
        grids = iter(example.pictures)
        while i < len(ids):
            if ids[i] == self.image_pad:
                w, h = (n // 32 for n in next(grids).size)
                rows += [(p, p + r, p + c) for r in range(h) for c in range(w)]
                p, i = p + max(h, w), i + h * w
            else:
                rows.append((p, p, p))
                p, i = p + 1, i + 1
        return np.array(rows).T

    def batch(self, examples, replies=None):
        """Right-padded tensors; `replies` (lists of ids) take the place of the examples' own."""
        encoded = [self.encode(e) for e in examples]
        if replies is not None:
            encoded = [(prompt, reply) for (prompt, _), reply in zip(encoded, replies)]
        length = -(-max(len(p) + len(r) for p, r in encoded) // 4) * 4
        n = len(examples)
        ids = torch.full((n, length), self.pad)
        pos = torch.zeros(3, n, length, dtype=torch.long)
        wanted = torch.zeros(n, length, dtype=torch.bool)
        for i, (example, (prompt, reply)) in enumerate(zip(examples, encoded)):
            row = prompt + reply
            ids[i, : len(row)] = torch.tensor(row)
            pos[:, i, : len(row)] = torch.from_numpy(self.positions(row, example))
            wanted[i, len(prompt) : len(row)] = True
        out = {"ids": ids, "pos": pos, "wanted": wanted, "patches": None, "grid": None, "labels": None}
        images = [image for e in examples for image in e.pictures]
        if images:
            w, h = images[0].size
            out["grid"] = h // 16, w // 16
            out["patches"] = torch.from_numpy(np.stack([pictures.patches(image) for image in images]))
            out["labels"] = torch.from_numpy(np.concatenate([e.labels for e in examples]))
        return out


GROUP = 4  # steps whose examples are drawn together and sorted by length


class Batches:
    """Batch number `step` of the training: even steps are text, if there is any, odd ones pictures. Every process takes its part."""

    def __init__(self, encoder, sizes, part=0, parts=1):
        """`sizes(step)` gives the examples in a batch of text and of pictures."""
        self.share = slice(part, None, parts)
        self.encoder, self.sizes = encoder, sizes
        self.group, self.drawn = None, None

    def __getitem__(self, step):
        n_text, n_pictures = self.sizes(step)
        if step % 2 or not n_text:
            rng = stream("train pictures", step)
            size = pictures.SIZES[int(rng.choice(len(pictures.SIZES), p=pictures.SIZE_WEIGHTS))]
            return self.encoder.batch([picture_example(rng, "train", size) for _ in range(n_pictures)][self.share])
        group, part = divmod(step // 2, GROUP)
        if group != self.group:
            rng = stream("train text", group)
            drawn = [text_example(rng, "train") for _ in range(GROUP * n_text)]
            drawn.sort(key=lambda e: len(e.prompt()) + len(e.reply()))
            self.drawn = [drawn[i * n_text : (i + 1) * n_text] for i in rng.permutation(GROUP)]
            self.group = group
        return self.encoder.batch(self.drawn[part][self.share])


def evaluation(n_text, n_pictures):
    """Held-out examples: text, and pictures by kind."""
    rng = stream("evaluation text")
    seen, text = set(), []
    while len(text) < n_text:
        e = text_example(rng, "eval")
        # Half of them in a new frame; small talk has no other kind.
        balanced = e.new_frame == (len(text) % 2 == 0) or e.group in ("small talk", "German")
        if balanced and e.question.lower() not in seen:
            seen.add(e.question.lower())
            text.append(e)
    shown = []
    for i in range(n_pictures):
        rng = stream("evaluation picture", i)
        size = pictures.SIZES[int(rng.choice(len(pictures.SIZES), p=pictures.SIZE_WEIGHTS))]
        shown.append(picture_example(rng, "eval", size, pictures.KINDS[i % len(pictures.KINDS)][0]))
    return text, shown

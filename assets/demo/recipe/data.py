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
    history: list = field(default_factory=list)  # (question, answer) of earlier turns; the training learns these answers too
    pictures: list = field(default_factory=list)
    originals: list = field(default_factory=list)
    labels: np.ndarray | None = None
    cells: np.ndarray | None = None
    picture_turn: int = -1  # the turn that the pictures come with; -1 is the last
    picture_last: bool = False
    new_frame: bool = False

    def questions(self):
        """What each turn of the user says, pictures in place."""
        said = [question for question, _ in self.history] + [self.question]
        images = IMAGE * len(self.pictures)
        said[self.picture_turn] = said[self.picture_turn] + images if self.picture_last else images + said[self.picture_turn]
        return said

    def pieces(self):
        """The conversation as the chat template writes it, thinking off unless `thinking`, in pieces (text, whether it is an
        answer); `export.py` checks that."""
        opening = f"<|im_start|>system\n{self.system}<|im_end|>\n" if self.system else ""
        for said, (_, answer) in zip(self.questions(), self.history):
            yield opening + f"<|im_start|>user\n{said}<|im_end|>\n<|im_start|>assistant\n", False
            yield f"{answer}<|im_end|>", True
            opening = "\n"
        opening += f"<|im_start|>user\n{self.questions()[-1]}<|im_end|>\n<|im_start|>assistant\n"
        yield opening + ("<think>\n" if self.thinking else "<think>\n\n</think>\n\n"), False
        yield (f"{self.thought}\n</think>\n\n" if self.thinking else "") + self.answer + "<|im_end|>", True

    def prompt(self):
        return "".join(text for text, _ in list(self.pieces())[:-1])

    def right(self, text):
        return all(part in text for part in self.must)


def stream(*key):
    digest = hashlib.sha256("|".join(map(str, (SEED, *key))).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def pick(rng, items):
    return items[int(rng.integers(len(items)))]


def expand(rng, template):
    """Takes one of each `[a|b]`, the innermost first."""
    while "[" in template:
        template = re.sub(r"\[([^\[\]]*)\]", lambda m: pick(rng, m[1].split("|")), template)
    return template


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
    "+": ["[What is|What's|How much is|Calculate] {a} + {b}[?|]", "{a} + {b}[ =| = ?|?|]", "{a}+{b}[=|?|]", "[What is|What's|How much is] {a} plus {b}?", "Add {a} and {b}.", "What is the sum of {a} and {b}?", "[Please|Can you] [compute|calculate] {a} [+|plus] {b}[.|?]", "[Tell me|I need] {a} plus {b}.", "{a} and {b} make what?",
          "!Can you work out {a} + {b}?", "!What do {a} and {b} make together?", "!Please tell me {a} plus {b}."],
    "-": ["[What is|What's|How much is|Calculate] {a} - {b}[?|]", "{a} - {b}[ =| = ?|?|]", "{a}-{b}[=|?|]", "[What is|What's|How much is] {a} minus {b}?", "Subtract {b} from {a}.", "Take {b} from {a}.", "[Please|Can you] [compute|calculate] {a} [-|minus] {b}[.|?]", "[Tell me|I need] {a} minus {b}.",
          "!Can you work out {a} - {b}?", "!Please tell me {a} minus {b}."],
    "×": ["[What is|What's|How much is|Calculate] {a} [×|x|*] {b}[?|]", "{a} [×|x|*] {b}[ =| = ?|?|]", "{a}[*|x]{b}[=|?|]", "[What is|What's|How much is] {a} times {b}?", "Multiply {a} by {b}.", "Multiply {a} and {b}.", "[Please|Can you] [compute|calculate] {a} [×|times] {b}[.|?]", "[Tell me|I need] {a} times {b}.",
          "!Can you work out {a} × {b}?", "!Please tell me {a} times {b}."],
}


def arithmetic(rng, split):
    op = pick(rng, ["+", "+", "-", "-", "×", "×"])
    if op == "×":
        a, b = int(rng.integers(0, 11)), int(rng.integers(0, 11))
        value = a * b
    else:
        a, b = int(rng.integers(0, 11)), int(rng.integers(0, 11))
        if op == "-" and b > a:
            a, b = b, a
        value = a + b if op == "+" else a - b
    asked = ask(rng, split, [w.replace("{a}", str(a)).replace("{b}", str(b)) for w in SUMS[op]])
    return asked and Example(asked[0], f"{a} {op} {b} = {value}.", [f"= {value}."], "arithmetic", op, f"A small sum: {a} {op} {b}.", new_frame=asked[1])


TEXT_KINDS = [
    (how_to, 0.42), (from_table(facts.FACTS, "guide", True), 0.2), (arithmetic, 0.16), (unknown, 0.08),
    (from_table(facts.TALK, "small talk", False, "The user is being friendly."), 0.09), (from_table(facts.GERMAN, "German", False, "The user writes German."), 0.05), (capital, 0.06),
]
TEXT_WEIGHTS = np.array([w for _, w in TEXT_KINDS])

OPENINGS = ["Please: ", "Hi! ", "Hello, ", "Quick question: ", "Sorry, ", "One more question: ", "So, ", "And ", "Ok. ", "Hey, ", "Well, "]
ENDINGS = [" Thanks.", " please", " in Loquat", " Thank you!", " Please help."]
SYSTEMS = ["You are a helpful assistant.", "Answer briefly.", "You are Loquat's guide.", "Be kind and short.", "Answer in one sentence."]


# Words that change nothing: some are put in and some left out, so that an answer hangs on the words that matter.
FILLERS = ("please now just really actually maybe then so well today quickly simply again here there kindly perhaps also even still very quite exactly "
           "my friend dear okay um hmm say guess think wonder ask want need give me a hint idea about how what does one try could would should might for us "
           "this that these some any all more only both than into from by at the it is in on").split()
DROPPED = set("how do i can you the a an to please is there what which tell me would like want need could of in this".split())


def loosen(rng, text):
    words = []
    for word in text.split(" "):
        if rng.random() < 0.1:
            words.append(pick(rng, FILLERS))
        if not (word.lower() in DROPPED and rng.random() < 0.12):
            words.append(word)
    return " ".join(words) or text


def roughen(rng, text, typos):
    """Small differences of how people type."""
    if typos and rng.random() < 0.4:
        text = loosen(rng, text)
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


def sum_case(rng, split):
    while True:
        example = arithmetic(rng, split)
        if example:
            return example


def text_example(rng, split):
    example = text_case(rng, split)
    train = split == "train"
    example.question = roughen(rng, example.question, train)
    example.thinking = train and rng.random() < 0.08
    example.system = pick(rng, SYSTEMS) if train and rng.random() < 0.08 else ""
    if train and example.group == "arithmetic" and rng.random() < 0.6:
        # Many short sums in one conversation: every one of them has to be met often.
        example.history = [(e.question, e.answer) for e in (sum_case(rng, split) for _ in range(int(rng.integers(4, 9))))]
    elif train and rng.random() < 0.3:
        turns = int(rng.integers(4, 7)) if rng.random() < 0.08 else int(rng.integers(1, 3))
        example.history = [(roughen(rng, e.question, True), e.answer) for e in (text_case(rng, split) for _ in range(turns))]
    return example


# ---------------------------------------------------------------- pictures


def picture_example(rng, split, frame, turns=1, kind=None, late=False):
    """Pictures that the processor brings to the size `frame.seen`, with up to `turns` questions about them."""
    train = split == "train"
    while True:
        canvases, asks = pictures.scene(rng, frame, kind, late)
        group, ways, answer, must = asks[0]
        asked = None
        # A new drawing costs more than a new wording of the same one.
        for _ in range(20):
            asked = asked or ask(rng, split, ways)
        if asked:
            break
    example = Example(roughen(rng, asked[0], train), answer, must, group, "", "I look at the picture.", new_frame=asked[1])
    more = []
    for i in rng.permutation(len(asks) - 1)[: turns - 1]:
        group, ways, answer, must = asks[i + 1]
        asked = ask(rng, split, ways) or ask(rng, split, ways)
        if asked:
            more.append((roughen(rng, asked[0], train), answer))
    if more:
        # The questions of a picture in any order; the main one keeps its place at the end in the half of them.
        if rng.random() < 0.5:
            more.append((example.question, example.answer))
            example.question, example.answer = more.pop(0)
        example.history, example.picture_turn = more, 0
    if train and turns == 1 and rng.random() < 0.06:
        other = text_case(rng, split)
        example.history = [(other.question, other.answer)]
    example.pictures, example.originals = [c.picture() for c in canvases], [c.image for c in canvases]
    example.labels, example.cells = map(np.stack, zip(*(c.rows() for c in canvases)))
    example.thinking = train and rng.random() < 0.05
    example.system = pick(rng, SYSTEMS) if train and rng.random() < 0.05 else ""
    example.picture_last = rng.random() < 0.12
    return example


# ---------------------------------------------------------------- batches


class Encoder:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.image_pad = tokenizer.token_to_id("<|image_pad|>")
        self.pad = tokenizer.token_to_id("<|endoftext|>")
        self.end = tokenizer.token_to_id("<|im_end|>")

    def encode(self, example):
        """The ids of the conversation, and which of them belong to answers."""
        ids, wanted = [], []
        grids = iter(example.pictures)
        for text, answer in example.pieces():
            for token in self.tokenizer.encode(text, add_special_tokens=False).ids:
                n = 1
                if token == self.image_pad:
                    w, h = next(grids).size
                    n = (w // 32) * (h // 32)
                ids += [token] * n
                wanted += [answer] * n
        return ids, wanted

    def prompt_ids(self, example):
        return self.prompt_of(*self.encode(example))

    def prompt_of(self, ids, wanted):
        """Without the last answer."""
        n = len(ids)
        while wanted[n - 1]:
            n -= 1
        return ids[:n]

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
        """Right-padded tensors; `replies` (lists of ids) take the place of the examples' own last answers, and only they are wanted."""
        encoded = [self.encode(e) for e in examples]
        if replies is not None:
            prompts = [self.prompt_of(*e) for e in encoded]
            encoded = [(prompt + reply, [False] * len(prompt) + [True] * len(reply)) for prompt, reply in zip(prompts, replies)]
        length = -(-max(len(row) for row, _ in encoded) // 4) * 4
        n = len(examples)
        ids = torch.full((n, length), self.pad)
        pos = torch.zeros(3, n, length, dtype=torch.long)
        wanted = torch.zeros(n, length, dtype=torch.bool)
        for i, (example, (row, of_answer)) in enumerate(zip(examples, encoded)):
            ids[i, : len(row)] = torch.tensor(row)
            pos[:, i, : len(row)] = torch.from_numpy(self.positions(row, example))
            wanted[i, : len(row)] = torch.tensor(of_answer)
        out = {"ids": ids, "pos": pos, "wanted": wanted, "patches": None, "grid": None}
        images = [image for e in examples for image in e.pictures]
        if images:
            out |= shown_tensors(images, [rows for e in examples for rows in zip(e.labels, e.cells)])
        return out


def shown_tensors(images, rows):
    w, h = images[0].size
    labels, cells = (torch.from_numpy(np.stack(part)) for part in zip(*rows))
    return {"patches": torch.from_numpy(np.stack([pictures.patches(image) for image in images])), "grid": (h // 16, w // 16), "labels": labels, "cells": cells}


GROUP = 8  # steps whose text is drawn together and sorted by length
TURNS = {1: 1.0, 2: 0.75, 3: 0.6}  # questions about a picture, and the share of the pictures that then fit a step
TURN_WEIGHTS = [0.4, 0.25, 0.35]


class Batches:
    """The text and the pictures of step `step` of the training. Every process takes its part."""

    def __init__(self, encoder, n_text, part=0, parts=1):
        """`n_text(step)` is the examples of text in a step."""
        self.share = slice(part, None, parts)
        self.encoder, self.n_text = encoder, n_text
        self.group, self.drawn = None, None

    def text(self, step):
        group, part = divmod(step, GROUP)
        if group != self.group:
            rng = stream("train text", group)
            drawn = [text_example(rng, "train") for _ in range(GROUP * self.n_text(group * GROUP))]
            size = lambda e: sum(len(text) for text, _ in e.pieces()) + 40
            drawn.sort(key=size)
            # Parts of about equal size, each of examples of about equal length.
            done = np.cumsum([size(e) for e in drawn])
            cuts = [0, *np.searchsorted(done, done[-1] * np.arange(1, GROUP) / GROUP), len(drawn)]
            self.drawn = [drawn[cuts[i] : cuts[i + 1]] for i in rng.permutation(GROUP)]
            self.group = group
        return self.encoder.batch(self.drawn[part][self.share])

    def shown(self, step, n, late):
        """Pictures with questions, all of one size and with as many questions; `late` in the training."""
        rng = stream("train pictures", step)
        seen = pictures.frame(rng).seen
        turns = int(rng.choice(list(TURNS), p=TURN_WEIGHTS))
        mine = range(int(n * TURNS[turns]))[self.share]
        rngs = [stream("train picture", step, i) for i in mine]
        return self.encoder.batch([picture_example(rng, "train", pictures.frame(rng, seen), turns, late=late) for rng in rngs])

    def alone(self, step, n):
        """Pictures of one size for the tower, without questions."""
        seen = pictures.frame(stream("train tower", step)).seen
        drawn, rows = [], []
        for i in range(n)[self.share]:
            rng = stream("train tower picture", step, i)
            kind = "glyph" if i % 3 == 0 else None  # they are the slowest to learn
            for c in pictures.scene(rng, pictures.frame(rng, seen), kind)[0]:
                drawn.append(c.picture())
                rows.append(c.rows())
        return shown_tensors(drawn, rows)


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
        kinds = list(pictures.KINDS)
        shown.append(picture_example(rng, "eval", pictures.frame(rng), kind=kinds[i % len(kinds)]))
    return text, shown

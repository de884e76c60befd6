"""Held-out scores of an exported model, as a table.

    python evaluate.py --model MODEL_DIR [--texts N] [--shown N] [--failures]     scores through transformers, greedy
    python evaluate.py --model MODEL_DIR --cases DIR                              writes DIR/cases.jsonl and pictures for `loquat batch`
    python evaluate.py --model MODEL_DIR --answers FILE.jsonl                     scores answers of another engine: {"id", "text"} a line

An answer is right when it contains its fact. "New frame" rows hold only ways of asking that no training wording shares.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import torch

import data
import export
import scores

MAX_NEW_TOKENS = 64


@torch.no_grad()
def answers_of_transformers(folder, examples):
    """Greedy replies, as ids, the stop token included."""
    reference, processor = export.load_transformers(folder)
    end = reference.generation_config.eos_token_id
    out = []
    for example in examples:
        got = export.inputs(processor, example)
        n = got["input_ids"].shape[1]
        ids = reference.generate(**got, do_sample=False, max_new_tokens=MAX_NEW_TOKENS, eos_token_id=end, top_k=None, top_p=None, temperature=None)
        out.append(ids[0, n:].tolist())
    return out


@torch.no_grad()
def drafting(demo, encoder, examples, replies):
    """Draft 1's acceptance, and tokens per step with three drafts, when the trunk's greedy replies are `replies`.

    With greedy decoding a draft is accepted when it is the token that the trunk chooses. So all of them can be judged
    in one pass over the finished reply, and the rounds counted from the verdicts.
    """
    drafted = accepted = steps = emitted = 0
    size = 1 if examples[0].pictures else 16  # the pictures of a batch share one grid
    for i in range(0, len(examples), size):
        batch_replies = replies[i : i + size]
        batch = encoder.batch(examples[i : i + size], replies=batch_replies)
        _, drafts, _ = scores.forward(demo, encoder, batch, 3)
        hits = [demo.head(m).argmax(-1) == scores.targets(batch, 2 + d) for d, m in enumerate(drafts)]
        for row, reply in enumerate(batch_replies):
            start = int(batch["wanted"][row].int().argmax())  # where the reply's first token stands
            last = start + len(reply) - 1
            judged = range(start - 1, last - 1)
            drafted += len(judged)
            accepted += sum(bool(hits[0][row, t]) for t in judged)
            at = start  # the newest token decided; the prefill gave the first
            while at < last:
                a = 0
                while a < 3 and at + a < last and hits[a][row, at - 1]:
                    a += 1
                n = min(a + 1, last - at)
                at, emitted, steps = at + n, emitted + n, steps + 1
    return accepted / max(drafted, 1), emitted / max(steps, 1)


def table(examples, texts):
    rows, order = defaultdict(lambda: [0, 0]), []

    def add(name, ok):
        if name not in rows:
            order.append(name)
        rows[name][0] += ok
        rows[name][1] += 1

    for example, text in zip(examples, texts):
        ok = example.right(text)
        kind = "pictures" if example.pictures else "text"
        add(f"{kind}: {example.group}", ok)
        if example.new_frame:
            add(f"{kind}: all, new frame", ok)
        add(f"{kind}: all", ok)
    width = max(map(len, order))
    print(f"| {'held-out questions':{width}} | right |    of |   share |")
    print(f"|{'-' * (width + 2)}|------:|------:|--------:|")
    for name in sorted(order, key=lambda n: (n.startswith("pictures"), ": all" in n, n)):
        good, total = rows[name]
        print(f"| {name:{width}} | {good:5} | {total:5} | {good / total:6.1%} |")


def write_cases(folder, examples):
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "cases.jsonl").open("w", encoding="utf-8") as f:
        for i, example in enumerate(examples):
            row = {"id": str(i), "prompt": example.question}
            if example.pictures:
                row["images"] = [f"{i}-{n}.png" for n in range(len(example.originals))]
                for name, image in zip(row["images"], example.originals):
                    image.save(folder / name)
            f.write(json.dumps(row, ensure_ascii=False) + "\n")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--model", type=Path, required=True)
    ap.add_argument("--texts", type=int, default=400)
    ap.add_argument("--shown", type=int, default=400, help="how many picture questions")
    ap.add_argument("--failures", action="store_true", help="print every wrong answer")
    ap.add_argument("--cases", type=Path)
    ap.add_argument("--answers", type=Path)
    ap.add_argument("--ids", type=Path, help="write transformers' greedy ids here, one JSON list a line")
    ap.add_argument("--threads", type=int, default=1)
    args = ap.parse_args()
    torch.set_num_threads(args.threads)
    text, shown = data.evaluation(args.texts, args.shown)
    examples = text + shown
    for example in examples:
        example.picture_last = False  # the order in which every engine's command line puts them
    if args.cases:
        return write_cases(args.cases, examples)
    if args.answers:
        given = {row["id"]: row.get("text", "") for row in map(json.loads, args.answers.read_text(encoding="utf-8").splitlines())}
        return table(examples, [given.get(str(i), "") for i in range(len(examples))])
    replies = answers_of_transformers(args.model, examples)
    demo, encoder = export.load_demo(args.model)
    texts = [encoder.tokenizer.decode(ids) for ids in replies]
    table(examples, texts)
    if args.ids:
        args.ids.write_text("".join(json.dumps(ids) + "\n" for ids in replies))
    for word, some in (("text", slice(0, len(text))), ("pictures", slice(len(text), None))):
        if examples[some]:
            rate, per_step = drafting(demo, encoder, examples[some], replies[some])
            print(f"MTP, {word}: {rate:.1%} of first drafts accepted; {per_step:.2f} tokens per step with 3 drafts")
    if args.failures:
        for example, answer in zip(examples, texts):
            if not example.right(answer):
                print(f"{example.group}: {example.question!r} -> {answer!r}, not {example.answer!r}")


if __name__ == "__main__":
    main()

"""Trains the demo model: trunk, vision tower and MTP head together.

    python train.py --work DIR [--steps N] [--processes N]

DIR keeps tokenizer, checkpoint and log; the same command goes on after a stop (Ctrl+C saves first). See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
import torch.nn.functional as F

import data
import pictures
import scores
import tokenizer
from model import TEXT, Demo

# (until step, rate of learning, examples of text, pictures for the tower alone, pictures with questions in a step). At
# first the tower learns alone, from labels, beside the trunk that learns from text: a picture in the trunk that can't be
# read yet is work for nothing. Fewer pictures than this fit when each has several questions; see data.TURNS.
SCHEDULE = [(300, 1.0, 28, 104, 0), (700, 0.8, 24, 56, 36), (1400, 0.8, 18, 32, 56), (10**9, 0.8, 8, 24, 64)]
LATE = 1400  # the step from which the pictures are those of `pictures.KINDS` for the end
MATRIX_RATE, RATE, EMBEDDING_RATE, WARMUP, COOL_DOWN = 0.02, 2e-3, 3e-3, 50, 0.6
MTP_WEIGHTS = (0.5, 0.3, 0.2)  # of drafts 1, 2, 3
DRAFTS_EVERY = 5  # the drafts are trained in every fifth step
PICTURE_WEIGHT = 1.0
LABEL_WEIGHT, CELL_WEIGHT = 0.05, 0.15  # of the losses on what the pictures hold, and their cells
SAVE_EVERY_S, SCORE_EVERY = 120, 100


def lesson(step):
    return next(sizes for until, *sizes in SCHEDULE if step < until)


def rate(step, steps):
    """Flat after the warm-up, then straight down: `--steps` may still be changed while it is flat."""
    return lesson(step)[0] * min(1.0, (step + 1) / WARMUP, max(steps - step, 1) / (COOL_DOWN * steps))


class Muon(torch.optim.Optimizer):
    """Momentum whose update of a matrix is made orthogonal. Every process does its part of the matrices."""

    def __init__(self, parameters, lr, momentum=0.95):
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            updates = []
            # Matrices of one shape follow each other, so dealing them out in turn shares the work well.
            for i, p in enumerate(sorted(moved, key=lambda p: p.shape)):
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                state["momentum"].lerp_(p.grad, 1 - group["momentum"])
                mine = i % world == rank
                updates.append((p, orthogonal(p.grad.lerp(state["momentum"], group["momentum"])) if mine else torch.zeros_like(p)))
            if world > 1:
                flat = torch.cat([u.flatten() for _, u in updates])
                dist.all_reduce(flat)
                updates = [(p, part.view_as(p)) for (p, _), part in zip(updates, flat.split([u.numel() for _, u in updates]))]
            for p, update in updates:
                p.add_(update, alpha=-group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5)


def orthogonal(x):
    """The nearest orthogonal matrix, roughly, by Newton and Schulz."""
    wide = x if x.shape[0] <= x.shape[1] else x.T
    y = wide / (wide.norm() + 1e-7)
    for _ in range(5):
        a = y @ y.T
        y = torch.addmm(y, torch.addmm(a, a, a, beta=-4.7750, alpha=2.0315), y, beta=3.4445)
    return y if wide is x else y.T


def optimisers(model, heads):
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
    embedding = [p for name, p in named if "embed_tokens" in name]
    rest = [p for name, p in named if not any(p is q for q in matrices + embedding)]
    adam = torch.optim.AdamW([{"params": rest + list(heads.parameters()), "lr": RATE}, {"params": embedding, "lr": EMBEDDING_RATE}], betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    return [Muon(matrices, MATRIX_RATE), adam]


class LabelHeads(torch.nn.Module):
    """Read off the tower what a picture and its cells show: only the training needs them."""

    def __init__(self):
        super().__init__()
        self.whole = torch.nn.Linear(TEXT["hidden_size"], len(pictures.LABELS))
        self.cells = torch.nn.Linear(TEXT["hidden_size"], len(pictures.CELL_LABELS))
        for layer in (self.whole, self.cells):
            torch.nn.init.zeros_(layer.weight)
            torch.nn.init.constant_(layer.bias, -3)

    def forward(self, features, batch):
        """The loss, and the shares of pictures and of cells with shapes in them that have every label right."""
        total, parts = 0.0, {}
        for name, logits, wanted, weight in (("whole", self.whole(features.mean(1)), batch["labels"], LABEL_WEIGHT),
                                             ("cells", self.cells(features).flatten(0, 1), batch["cells"].flatten(0, 1), CELL_WEIGHT)):
            loss = F.binary_cross_entropy_with_logits(logits, wanted, reduction="sum") / len(wanted)
            right = ((logits > 0) == (wanted > 0.5)).all(-1)[wanted.any(-1)].float().mean()
            parts |= {name: loss, f"{name} right": right}
            total = total + weight * loss
        return total, parts


def losses(model, heads, encoder, batch, step, per_step):
    """`per_step`: about how many tokens of answers a step has, so that every token counts the same; none for the tower alone."""
    if per_step is None:
        return heads(model.model.visual(batch["patches"], batch["grid"]), batch)
    depth = len(MTP_WEIGHTS) if step % DRAFTS_EVERY == 0 else 0
    hidden, drafts, features = scores.forward(model, encoder, batch, depth)
    total, parts = 0.0, {}
    for shift, states in enumerate([hidden, *drafts]):
        mask = scores.wanted_after(batch, 1 + shift)
        loss = F.cross_entropy(model.head(states[mask]), scores.targets(batch, 1 + shift)[mask], reduction="sum")
        parts[f"mtp{shift}" if shift else "trunk"] = loss / mask.sum()
        total = total + (MTP_WEIGHTS[shift - 1] if shift else 1.0) * loss / per_step
    if features is not None:
        label_loss, label_parts = heads(features, batch)
        total, parts = PICTURE_WEIGHT * total + label_loss, parts | label_parts
    return total, parts


def share(parameters, stop):
    """Averages the gradients over the processes; true when the first of them was asked to stop."""
    if not dist.is_initialized():
        return stop
    grads = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([g.flatten() for g in grads] + [torch.tensor([float(stop)])])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for g, part in zip(grads, flat[:-1].split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))
    return bool(flat[-1] > 0)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--work", type=Path, required=True)
    ap.add_argument("--steps", type=int, default=1400)
    ap.add_argument("--processes", type=int, default=2, help="each takes its share of every batch, on one thread")
    ap.add_argument("--stop-after", type=int, help="stop at this step, to go on later")
    args = ap.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    tokenizer.load(args.work)
    if args.processes == 1:
        return train(0, args)
    # Processes of one thread wait for each other once a step; threads do so in every operation, which on a busy
    # machine cost more than it gained.
    meeting = args.work / "meeting"
    meeting.unlink(missing_ok=True)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    running = torch.multiprocessing.start_processes(train, (args,), nprocs=args.processes, join=False, start_method="spawn")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the children too
    signal.signal(signal.SIGTERM, lambda *_: [os.kill(pid, signal.SIGTERM) for pid in running.pids()])
    while not running.join():
        pass


def train(rank, args):
    if args.processes > 1:
        dist.init_process_group("gloo", init_method=f"file://{(args.work / 'meeting').absolute()}", rank=rank, world_size=args.processes)
    torch.set_num_threads(1)
    torch.manual_seed(data.SEED)
    encoder = data.Encoder(tokenizer.load(args.work))
    model = Demo(tokenizer.rows(encoder.tokenizer))
    heads = LabelHeads()
    parameters = [*model.parameters(), *heads.parameters()]
    opts = optimisers(model, heads)
    rates = [[group["lr"] for group in opt.param_groups] for opt in opts]
    checkpoint, log = args.work / "checkpoint.pt", args.work / "log.jsonl"
    step, spent = 0, 0.0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        heads.load_state_dict(saved["heads"])
        for opt, state in zip(opts, saved["opts"]):
            opt.load_state_dict(state)
        step, spent = saved["step"], saved["seconds"]
        print(f"goes on at step {step}", flush=True)
    elif rank == 0:
        print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)

    def save():
        state = {"model": model.state_dict(), "heads": heads.state_dict(), "opts": [opt.state_dict() for opt in opts], "step": step, "seconds": spent, "steps": args.steps}
        torch.save(state, checkpoint.with_suffix(".new"))
        os.replace(checkpoint.with_suffix(".new"), checkpoint)

    batches = data.Batches(encoder, lambda step: lesson(step)[1], rank, args.processes)
    held_out = data.evaluation(120, 120)
    began = saved_at = time.time()
    spent_before, tokens, sums = spent, 0, {}
    last = min(args.steps, args.stop_after or args.steps)
    stopped = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.append(True))
    stop = False
    while step < last and not stop:
        scale = rate(step, args.steps)
        for opt, opt_rates in zip(opts, rates):
            for group, group_rate in zip(opt.param_groups, opt_rates):
                group["lr"] = group_rate * scale
        _, n_text, n_alone, n_shown = lesson(step)
        for kind, n, per_example in (("text", n_text, 18), ("tower", n_alone, None), ("picture", n_shown, 15)):
            if not n:
                continue
            batch = batches.text(step) if kind == "text" else batches.alone(step, n) if kind == "tower" else batches.shown(step, n, step >= LATE)
            total, parts = losses(model, heads, encoder, batch, step, per_example and n / args.processes * per_example)
            total.backward()
            if rank == 0:
                tokens += batch["ids"].numel() * args.processes if per_example else 0
                for name, value in parts.items():
                    sums.setdefault(f"{kind} {name}", []).append(value.item())
        stop = share(parameters, rank == 0 and bool(stopped))
        for opt in opts:
            opt.step()
            opt.zero_grad()
        step += 1
        if rank > 0:
            continue
        spent = spent_before + time.time() - began
        if step % 20 == 0 or step == last:
            row = {"step": step, "seconds": round(spent), "tokens_per_s": round(tokens / (time.time() - began)), **{k: round(sum(v) / len(v), 4) for k, v in sums.items()}}
            sums = {}
            if (step % SCORE_EVERY == 0 or step == last):
                for word, examples in zip(("text", "pictures"), held_out):
                    by_group, draft = scores.exact(model, encoder, examples)
                    row[word] = {g: round(v, 2) for g, v in sorted(by_group.items())} | {"draft 1": round(draft, 3)}
            line = json.dumps(row, ensure_ascii=False)
            print(line, flush=True)
            with log.open("a") as f:
                f.write(line + "\n")
        if time.time() - saved_at > SAVE_EVERY_S:
            save()
            saved_at = time.time()
    if rank == 0:
        save()


if __name__ == "__main__":
    main()

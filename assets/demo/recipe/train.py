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

# First the tower alone learns to name what the pictures hold: a picture costs a sixth of what it does with the trunk.
# Then all together, in small steps at first. Batches are (examples of text, examples of pictures).
TOWER_UNTIL, SMALL_UNTIL = 1000, 1400
TOWER_BATCH, SMALL_BATCH, BATCH = (0, 64), (24, 16), (40, 28)
PEAK_RATE, WARMUP, COOL_DOWN = 2e-3, 200, 0.25
WEIGHT_DECAY = 0.05
MTP_WEIGHTS = (0.3, 0.15, 0.1)  # of drafts 1, 2, 3
CHAIN_EVERY = 3  # drafts 2 and 3 are trained in every third step: they cost as much as the first
# The loss on what the pictures hold; later the replies teach the tower more.
LABEL_WEIGHT, LABEL_HALF_LIFE = 30.0, 2000
SAVE_EVERY_S, SCORE_EVERY = 120, 250


def rate(step, steps):
    """Flat after the warm-up, then straight down: `--steps` may still be changed while it is flat."""
    return min(1.0, (step + 1) / WARMUP, max(steps - step, 1) / (COOL_DOWN * steps))


def optimiser(model, labels):
    matrices = [p for name, p in model.named_parameters() if p.ndim >= 2 and "conv1d" not in name]
    rest = [p for name, p in model.named_parameters() if p.ndim < 2 or "conv1d" in name]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": rest + list(labels.parameters()), "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95), fused=True)


def batch_sizes(step):
    return TOWER_BATCH if step < TOWER_UNTIL else SMALL_BATCH if step < SMALL_UNTIL else BATCH


def named(features, labels, wanted):
    """The loss of the pictures' labels, and the share of pictures with all of them right."""
    logits = labels(features.mean(1))
    right = ((logits > 0) == (wanted > 0.5)).all(-1).float().mean()
    return F.binary_cross_entropy_with_logits(logits, wanted), right


def losses(model, labels, encoder, batch, step):
    if step < TOWER_UNTIL:
        loss, right = named(model.model.visual(batch["patches"], batch["grid"]), labels, batch["labels"])
        return LABEL_WEIGHT * loss, {"labels": loss, "all labels right": right}
    depth = len(MTP_WEIGHTS) if (step // 2) % CHAIN_EVERY == 0 else 1
    hidden, drafts, features = scores.forward(model, encoder, batch, depth)

    def loss(states, shift):
        mask = scores.wanted_after(batch, shift)
        return F.cross_entropy(model.head(states[mask]), scores.targets(batch, shift)[mask])

    parts = {"trunk": loss(hidden, 1)}
    total = parts["trunk"]
    for d, states in enumerate(drafts):
        parts[f"mtp{d + 1}"] = loss(states, 2 + d)
        total = total + MTP_WEIGHTS[d] * parts[f"mtp{d + 1}"]
    if features is not None:
        parts["labels"], parts["all labels right"] = named(features, labels, batch["labels"])
        total = total + LABEL_WEIGHT * 0.5 ** ((step - TOWER_UNTIL) / LABEL_HALF_LIFE) * parts["labels"]
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
    ap.add_argument("--steps", type=int, default=8500)
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
    labels = torch.nn.Linear(TEXT["hidden_size"], len(pictures.LABELS))
    parameters = [*model.parameters(), *labels.parameters()]
    opt = optimiser(model, labels)
    checkpoint, log = args.work / "checkpoint.pt", args.work / "log.jsonl"
    step, spent = 0, 0.0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        labels.load_state_dict(saved["labels"])
        opt.load_state_dict(saved["opt"])
        step, spent = saved["step"], saved["seconds"]
        print(f"goes on at step {step}", flush=True)
    elif rank == 0:
        print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)

    def save():
        state = {"model": model.state_dict(), "labels": labels.state_dict(), "opt": opt.state_dict(), "step": step, "seconds": spent, "steps": args.steps}
        torch.save(state, checkpoint.with_suffix(".new"))
        os.replace(checkpoint.with_suffix(".new"), checkpoint)

    batches = data.Batches(encoder, batch_sizes, rank, args.processes)
    held_out = data.evaluation(200, 200)
    began = saved_at = time.time()
    spent_before, tokens, sums = spent, 0, {}
    last = min(args.steps, args.stop_after or args.steps)
    stopped = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.append(True))
    stop = False
    while step < last and not stop:
        batch = batches[step]
        scale = rate(step, args.steps)
        for group in opt.param_groups:
            group["lr"] = PEAK_RATE * scale
        total, parts = losses(model, labels, encoder, batch, step)
        total.backward()
        stop = share(parameters, rank == 0 and bool(stopped))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        step += 1
        if rank > 0:
            continue
        tokens += 0 if step < TOWER_UNTIL else batch["ids"].numel() * args.processes
        for name, value in parts.items():
            sums.setdefault(("text " if batch["patches"] is None else "picture ") + name, []).append(value.item())
        spent = spent_before + time.time() - began
        if step % 50 == 0 or step == last:
            row = {"step": step, "seconds": round(spent), "tokens_per_s": round(tokens / (time.time() - began)), **{k: round(sum(v) / len(v), 4) for k, v in sums.items()}}
            sums = {}
            if step > TOWER_UNTIL and (step % SCORE_EVERY == 0 or step == last):
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

"""Scores of the model in training: exact replies by group, and how far the MTP drafts are accepted."""

from __future__ import annotations

from collections import defaultdict

import torch

from model import rope_tables


def forward(model, encoder, batch, depth):
    """Trunk states [B, L, H] and the MTP's, one per depth, for a batch."""
    x, features = model.embed(batch["ids"], encoder.image_pad, batch["patches"], batch["grid"])
    pos = torch.cat([batch["pos"], batch["pos"][:, :, -1:].expand(-1, -1, depth)], -1)
    rope = rope_tables(pos)
    n = x.shape[1]
    hidden = model.model.language_model(x, [t[:, :, :n] for t in rope])
    following = torch.nn.functional.pad(x[:, 1:], (0, 0, 0, depth + 1))
    return hidden, (model.mtp(hidden, following, rope, depth) if depth else []), features


def wanted_after(batch, shift):
    """Mask [B, L]: the token `shift` further on belongs to the reply, and for drafts so does the one before it."""
    wanted = torch.nn.functional.pad(batch["wanted"], (0, shift))[:, shift:]
    if shift > 1:
        wanted = wanted & torch.nn.functional.pad(batch["wanted"], (0, 1))[:, 1:]
    return wanted


def targets(batch, shift):
    return torch.nn.functional.pad(batch["ids"], (0, shift))[:, shift:]


@torch.no_grad()
def exact(model, encoder, examples, size=50):
    """Share of examples whose reply is the reference token for token (a lower bound of right answers), by group."""
    model.eval()
    good, total = defaultdict(int), defaultdict(int)
    first = accepted = drafted = 0
    order = sorted(examples, key=lambda e: (e.pictures[0].size if e.pictures else (0, 0), len(e.prompt())))
    i = 0
    while i < len(order):
        size_of = lambda e: e.pictures[0].size if e.pictures else None
        part = [e for e in order[i : i + size] if size_of(e) == size_of(order[i])]
        i += len(part)
        batch = encoder.batch(part)
        hidden, drafts, _ = forward(model, encoder, batch, 1)
        mask = wanted_after(batch, 1)
        hit = (model.head(hidden).argmax(-1) == targets(batch, 1)) | ~mask
        for e, ok in zip(part, hit.all(-1).tolist()):
            good[e.group] += ok
            total[e.group] += 1
        mask = wanted_after(batch, 2)
        accepted += int(((model.head(drafts[0]).argmax(-1) == targets(batch, 2)) & mask).sum())
        drafted += int(mask.sum())
    model.train()
    return {g: good[g] / total[g] for g in total}, accepted / max(drafted, 1)

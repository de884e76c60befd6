"""The demo model for training: `qwen3_5` with vision tower and MTP head, batched, in plain torch.

State-dict names are the Hub's, so an export is a change of dtype. Text goes [B, L] padded on the right: every
mixer is causal, so what stands after a sequence can't reach it, and the loss leaves it out. Pictures of one batch
share one grid. Source: the family's reference implementation; `export.py` compares the two. Sequences are short,
so `kernels.py` does the delta rule as one chunk from a zero state.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import nn

from kernels import DeltaRule, RmsNorm, SwiGlu

EPS = 1e-6

TEXT = dict(
    hidden_size=192,
    intermediate_size=512,
    num_hidden_layers=6,
    full_attention_interval=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    linear_num_key_heads=3,
    linear_num_value_heads=3,
    linear_key_head_dim=32,
    linear_value_head_dim=64,
    linear_conv_kernel_dim=4,
    partial_rotary_factor=0.25,
    rope_theta=10000,
    mrope_section=[3, 3, 2],
)
VISION = dict(depth=4, hidden_size=128, intermediate_size=384, num_heads=4, side=8)
PATCH, MERGE, TEMPORAL = 16, 2, 2


def layer_types():
    n, every = TEXT["num_hidden_layers"], TEXT["full_attention_interval"]
    return ["full_attention" if (i + 1) % every == 0 else "linear_attention" for i in range(n)]


class Norm(nn.Module):
    """RMS norm whose stored weight is zero-centred."""

    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return RmsNorm.apply(x, 1 + self.weight)


class PlainWeight(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.weight = nn.Parameter(value)


def linear(n_in, n_out, bias=False, gain=1.0):
    layer = nn.Linear(n_in, n_out, bias=bias)
    nn.init.normal_(layer.weight, std=gain / math.sqrt(n_in))
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def together(x, *layers):
    """The outputs of several bias-free layers from one product."""
    return F.linear(x, torch.cat([layer.weight for layer in layers])).split([layer.out_features for layer in layers], -1)


RESIDUAL_GAIN = 0.3  # of the matrices that write into the residual stream


# ---------------------------------------------------------------- text


def rope_tables(pos):
    """pos [3, B, L] -> cos, sin [B, 1, L, rotary]; frequencies take the axes T H W T H W … in turn."""
    rotary = int(TEXT["head_dim"] * TEXT["partial_rotary_factor"])
    inv = TEXT["rope_theta"] ** (-torch.arange(0, rotary, 2).float() / rotary)
    angles = pos[..., None].float() * inv
    mixed = angles[0].clone()
    for axis in (1, 2):
        stop = 3 * TEXT["mrope_section"][axis]
        mixed[..., axis:stop:3] = angles[axis][..., axis:stop:3]
    mixed = torch.cat([mixed, mixed], -1)[:, None]
    return mixed.cos(), mixed.sin()


def rotate(x, cos, sin):
    n = cos.shape[-1]
    turned, rest = x[..., :n], x[..., n:]
    half = torch.cat([-turned[..., n // 2 :], turned[..., : n // 2]], -1)
    return torch.cat([turned * cos + half * sin, rest], -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        h, hd = TEXT["hidden_size"], TEXT["head_dim"]
        self.n_q, self.n_kv, self.hd = TEXT["num_attention_heads"], TEXT["num_key_value_heads"], hd
        self.q_proj = linear(h, self.n_q * hd * 2)
        self.k_proj = linear(h, self.n_kv * hd)
        self.v_proj = linear(h, self.n_kv * hd)
        self.o_proj = linear(self.n_q * hd, h, gain=RESIDUAL_GAIN)
        self.q_norm, self.k_norm = Norm(hd), Norm(hd)

    def project(self, x, rope):
        b, n, _ = x.shape
        q, k, v = together(x, self.q_proj, self.k_proj, self.v_proj)
        q, gate = q.view(b, n, self.n_q, 2 * self.hd).chunk(2, -1)
        k, v = k.view(b, n, self.n_kv, self.hd), v.view(b, n, self.n_kv, self.hd)
        q, k = self.q_norm(q).transpose(1, 2), self.k_norm(k).transpose(1, 2)
        r = self.n_q // self.n_kv
        k, v = (t.repeat_interleave(r, 1) for t in (rotate(k, *rope), v.transpose(1, 2)))
        return rotate(q, *rope), k, v, gate.reshape(b, n, -1)

    def close(self, o, gate):
        return self.o_proj(o.transpose(1, 2).flatten(2) * torch.sigmoid(gate))

    def forward(self, x, rope):
        q, k, v, gate = self.project(x, rope)
        return self.close(F.scaled_dot_product_attention(q, k, v, is_causal=True), gate)


class LinearAttention(nn.Module):
    def __init__(self):
        super().__init__()
        h = TEXT["hidden_size"]
        self.nk, self.nv = TEXT["linear_num_key_heads"], TEXT["linear_num_value_heads"]
        self.dk, self.dv = TEXT["linear_key_head_dim"], TEXT["linear_value_head_dim"]
        key, value = self.nk * self.dk, self.nv * self.dv
        self.in_proj_qkv = linear(h, 2 * key + value)
        self.in_proj_z = linear(h, value)
        self.in_proj_b = linear(h, self.nv)
        self.in_proj_a = linear(h, self.nv)
        kernel = TEXT["linear_conv_kernel_dim"]
        self.conv1d = PlainWeight(torch.randn(2 * key + value, 1, kernel) * 0.3)
        with torch.no_grad():
            self.conv1d.weight[:, :, -1] += 0.7
        self.A_log = nn.Parameter(torch.empty(self.nv).uniform_(1, 8).log())
        dt = torch.empty(self.nv).uniform_(math.log(0.003), math.log(0.1)).exp()
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.norm = PlainWeight(torch.ones(self.dv))
        self.out_proj = linear(value, h, gain=RESIDUAL_GAIN)

    def forward(self, x, rope):
        mixed = F.linear(x, torch.cat([self.in_proj_qkv.weight, self.in_proj_z.weight, self.in_proj_b.weight, self.in_proj_a.weight]))
        heads = self.nk, self.nv, self.dk, self.dv
        return self.out_proj(DeltaRule.apply(mixed, self.conv1d.weight, self.A_log, self.dt_bias, self.norm.weight, heads))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        h, i = TEXT["hidden_size"], TEXT["intermediate_size"]
        self.gate_proj, self.up_proj = linear(h, i), linear(h, i)
        self.down_proj = linear(i, h, gain=RESIDUAL_GAIN)

    def forward(self, x):
        return self.down_proj(SwiGlu.apply(F.linear(x, torch.cat([self.gate_proj.weight, self.up_proj.weight]))))


class Layer(nn.Module):
    def __init__(self, kind):
        super().__init__()
        h = TEXT["hidden_size"]
        self.input_layernorm, self.post_attention_layernorm = Norm(h), Norm(h)
        if kind == "full_attention":
            self.self_attn = Attention()
        else:
            self.linear_attn = LinearAttention()
        self.mlp = Mlp()

    def forward(self, x, rope):
        mixer = self.self_attn if hasattr(self, "self_attn") else self.linear_attn
        x = x + mixer(self.input_layernorm(x), rope)
        return x + self.mlp(self.post_attention_layernorm(x))


class LanguageModel(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        h = TEXT["hidden_size"]
        self.embed_tokens = PlainWeight(torch.randn(vocab_size, h) * h**-0.5)
        self.layers = nn.ModuleList(Layer(kind) for kind in layer_types())
        self.norm = Norm(h)

    def forward(self, x, rope):
        for layer in self.layers:
            x = layer(x, rope)
        return self.norm(x)


# ---------------------------------------------------------------- MTP


class Mtp(nn.Module):
    """Predicts the token after the next one from the trunk's normed state and the next token; may be chained."""

    def __init__(self):
        super().__init__()
        h = TEXT["hidden_size"]
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = Norm(h), Norm(h), Norm(h)
        self.fc = linear(2 * h, h)
        self.layers = nn.ModuleList([Layer("full_attention")])

    def forward(self, hidden, embeds, rope, depth):
        """hidden [B, L, H] at positions t; embeds [B, L + depth, H] with row i the token at t + 1 + i (any content past
        the end). Returns `depth` states [B, L, H]; state d judges the token at t + 2 + d.

        A later depth attends to the first depth's keys up to t and to the keys of its own chain, as decoding does.
        """
        n = hidden.shape[1]
        layer, attn = self.layers[0], self.layers[0].self_attn
        mask = torch.ones(n, n, dtype=torch.bool).triu(1)
        keys, out = None, []
        chain = []
        for d in range(depth):
            e = self.pre_fc_norm_embedding(embeds[:, d : d + n])
            x = self.fc(torch.cat([e, self.pre_fc_norm_hidden(hidden)], -1))
            q, k, v, gate = attn.project(layer.input_layernorm(x), [t[:, :, d : d + n] for t in rope])
            if d == 0:
                keys = k, v
                o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                chain.append((k, v))
                scale = attn.hd**-0.5
                scores = [(q @ keys[0].mT * scale).masked_fill(mask, float("-inf"))]
                scores += [(q * k).sum(-1, keepdim=True) * scale for k, _ in chain]
                p = torch.cat(scores, -1).float().softmax(-1).to(q.dtype)
                o = p[..., :n] @ keys[1]
                for i, (_, v) in enumerate(chain):
                    o = o + p[..., n + i : n + i + 1] * v
            x = x + attn.close(o, gate)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            hidden = self.norm(x)
            out.append(hidden)
        return out


# ---------------------------------------------------------------- vision


def vision_frequencies():
    n = VISION["hidden_size"] // VISION["num_heads"] // 2
    return 10000.0 ** (-torch.arange(0, n, 2).float() / n)


@lru_cache(maxsize=None)
def grid_tables(h, w):
    """For a grid of h x w patches, in the order of 2x2 blocks: rows and weights of the position table; rope cos, sin."""
    side, hd = VISION["side"], VISION["hidden_size"] // VISION["num_heads"]
    br, bc, ir, ic = torch.meshgrid(*(torch.arange(n) for n in (h // MERGE, w // MERGE, MERGE, MERGE)), indexing="ij")
    row, col = (br * MERGE + ir).flatten(), (bc * MERGE + ic).flatten()

    def taps(i, n):
        at = torch.linspace(0, side - 1, n)[i]
        low = at.floor().long()
        return low, (low + 1).clamp(max=side - 1), at - low

    r0, r1, fr = taps(row, h)
    c0, c1, fc = taps(col, w)
    index = torch.stack([r0 * side + c0, r0 * side + c1, r1 * side + c0, r1 * side + c1])
    weight = torch.stack([(1 - fr) * (1 - fc), (1 - fr) * fc, fr * (1 - fc), fr * fc])[..., None]
    inv = vision_frequencies()
    angles = torch.cat([row[:, None] * inv, col[:, None] * inv], -1)
    angles = torch.cat([angles, angles], -1)
    return index, weight, (angles.cos(), angles.sin())


# Where the heads of each block look at first, in patches from their own place (rows, columns): at neighbours, which is
# how a convolution would begin. The last number is how sharply.
FIRST_LOOKS = [
    ([(0, -1), (0, 1), (-1, 0), (1, 0)], 4.0), ([(-1, -1), (-1, 1), (1, -1), (1, 1)], 4.0), ([(0, -2), (0, 2), (-2, 0), (2, 0)], 3.0), ([(0, 0)] * 4, 1.5),
]


class VisionAttention(nn.Module):
    def __init__(self, looks, sharpness):
        super().__init__()
        d = VISION["hidden_size"]
        self.qkv, self.proj = linear(d, 3 * d, True), linear(d, d, True, RESIDUAL_GAIN)
        heads = VISION["num_heads"]
        bias = self.qkv.bias.detach().view(3, heads, 2, 2, -1)  # q k v, head, halves that the rotation pairs, rows or columns, frequency
        inv = vision_frequencies()[:2]
        for head, look in enumerate(looks):
            for axis, offset in enumerate(look):
                # The product of the turned biases is largest where the key stands `offset` further on.
                bias[1, head, 0, axis, :2] = sharpness
                bias[0, head, 0, axis, :2] = sharpness * (offset * inv).cos()
                bias[0, head, 1, axis, :2] = sharpness * (offset * inv).sin()

    def forward(self, x, rope):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, VISION["num_heads"], -1).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(rotate(q, *rope), rotate(k, *rope), v)
        return self.proj(o.transpose(1, 2).flatten(2))


class VisionMlp(nn.Module):
    def __init__(self):
        super().__init__()
        d, i = VISION["hidden_size"], VISION["intermediate_size"]
        self.linear_fc1, self.linear_fc2 = linear(d, i, True), linear(i, d, True, RESIDUAL_GAIN)

    def forward(self, x):
        return self.linear_fc2(F.gelu(self.linear_fc1(x), approximate="tanh"))


class VisionBlock(nn.Module):
    def __init__(self, looks):
        super().__init__()
        d = VISION["hidden_size"]
        self.norm1, self.norm2 = nn.LayerNorm(d, EPS), nn.LayerNorm(d, EPS)
        self.attn, self.mlp = VisionAttention(*looks), VisionMlp()

    def forward(self, x, rope):
        x = x + self.attn(self.norm1(x), rope)
        return x + self.mlp(self.norm2(x))


class Merger(nn.Module):
    def __init__(self):
        super().__init__()
        d = VISION["hidden_size"]
        self.norm = nn.LayerNorm(d, EPS)
        self.linear_fc1 = linear(4 * d, 4 * d, True)
        self.linear_fc2 = linear(4 * d, TEXT["hidden_size"], True, RESIDUAL_GAIN)

    def forward(self, x):
        b, n, d = x.shape
        x = self.norm(x).view(b, n // MERGE**2, d * MERGE**2)
        return self.linear_fc2(F.gelu(self.linear_fc1(x)))


def smooth_patterns(n):
    """The n smoothest cosine patterns of a patch, of unit norm, the finer ones louder: edges are faint beside flat areas."""
    at = (torch.arange(PATCH) + 0.5) * math.pi / PATCH
    order = sorted(((u, v) for u in range(PATCH) for v in range(PATCH)), key=lambda f: (f[0] ** 2 + f[1] ** 2, f))[:n]
    waves = torch.stack([(at * u).cos()[:, None] * (at * v).cos()[None] for u, v in order])
    gain = torch.tensor([1.0 + math.hypot(u, v) for u, v in order])
    return waves / waves.flatten(1).norm(dim=1)[:, None, None] * gain[:, None, None]


def table_2d(side, d):
    """Waves over a square of places, [side², d]: rows in the first half, columns in the second."""
    waves = torch.arange(side).float()[:, None] * math.pi / side * torch.arange(1, d // 4 + 1).sqrt()
    waves = torch.cat([waves.cos(), waves.sin()], -1)
    return torch.cat([waves[:, None].expand(-1, side, -1), waves[None].expand(side, -1, -1)], -1).reshape(side * side, d)


class PatchEmbed(nn.Module):
    def __init__(self):
        super().__init__()
        d = VISION["hidden_size"]
        self.proj = nn.Module()
        # Light from dark in half of the rows, two contrasts of colour in the rest.
        colours = torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0], [0.5, 0.5, -1.0]]) / torch.tensor([3.0, 2.0, 1.5]).sqrt()[:, None]
        counts = [d // 2, d // 4, d // 4]
        rows = torch.cat([colour[None, :, None, None] * smooth_patterns(n)[:, None] for colour, n in zip(colours, counts)])
        self.proj.weight = nn.Parameter((rows * 0.1 / TEMPORAL)[:, :, None].repeat(1, 1, TEMPORAL, 1, 1))
        self.proj.bias = nn.Parameter(torch.zeros(d))


class Visual(nn.Module):
    def __init__(self):
        super().__init__()
        d = VISION["hidden_size"]
        self.patch_embed = PatchEmbed()
        self.pos_embed = PlainWeight(0.3 * table_2d(VISION["side"], d))
        self.blocks = nn.ModuleList(VisionBlock(looks) for looks in FIRST_LOOKS[: VISION["depth"]])
        self.merger = Merger()

    def forward(self, patches, grid):
        """patches [B, N, 3*16*16] of stills, grid (h, w) in patches -> [B, N/4, H]."""
        index, weight, rope = grid_tables(*grid)
        # A still fills both frames of a patch, so the two halves of the kernel add up.
        proj = self.patch_embed.proj
        x = F.linear(patches, proj.weight.sum(2).flatten(1), proj.bias)
        x = x + (self.pos_embed.weight[index] * weight).sum(0)
        for block in self.blocks:
            x = block(x, rope)
        return self.merger(x)


class Demo(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.model = nn.Module()
        self.model.language_model = LanguageModel(vocab_size)
        self.model.visual = Visual()
        self.mtp = Mtp()

    def embed(self, ids, image_token_id=None, patches=None, grid=None):
        """Token embeddings with the pictures' features in place; returns them and the features."""
        x = F.embedding(ids, self.model.language_model.embed_tokens.weight)
        if patches is None:
            return x, None
        features = self.model.visual(patches, grid).to(x.dtype)
        at = ids == image_token_id
        return x.masked_scatter(at[..., None], features), features

    def head(self, hidden):
        return hidden @ self.model.language_model.embed_tokens.weight.T.to(hidden.dtype)

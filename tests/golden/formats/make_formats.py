"""Makes blocks.safetensors and packed_{fp8,gptq,awq}.safetensors: numbers as quantised files store them, and what
they stand for.

    python make_formats.py         # needs gguf (made with 0.19.0), numpy, torch and safetensors

Blocks of GGUF types are random and are read by the gguf package. The layouts of FP8, GPTQ and AWQ are written out
here: matrices of the fixture dense-a are rounded, packed, and unpacked again by the formula that each format states.
"""

import pathlib

import gguf
import numpy
import torch
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
DENSE = HERE.parent / "dense-a" / "model" / "model.safetensors"

# Type, blocks, and where in a block its f16 scales are: random bytes would make many of them infinite.
BLOCKS = [
    ("Q4_0", 9, [0]),
    ("Q4_1", 9, [0, 2]),
    ("Q5_0", 9, [0]),
    ("Q5_1", 9, [0, 2]),
    ("Q8_0", 9, [0]),
    ("Q4_K", 3, [0, 2]),
    ("Q5_K", 3, [0, 2]),
    ("Q6_K", 3, [208]),
]

# Matrices of dense-a that become packed, and two of other shapes.
NAMES = ["model.layers.0.mlp.gate_proj", "model.layers.0.mlp.down_proj", "model.layers.1.linear_attn.in_proj_qkv",
         "model.layers.3.self_attn.o_proj", "mtp.layers.0.mlp.up_proj"]
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def blocks(rng):
    tensors = {}
    for name, n, scales in BLOCKS:
        kind = gguf.GGMLQuantizationType[name]
        _, size = gguf.GGML_QUANT_SIZES[kind]
        data = rng.integers(0, 256, (n, size), dtype=numpy.uint8)
        for at in scales:
            # The last block has scales below the normal numbers of f16.
            values = rng.normal(size=n).astype(numpy.float16)
            values[-1] = 3e-6
            data[:, at : at + 2] = values.view(numpy.uint8).reshape(n, 2)
        values = gguf.dequantize(data, kind)
        tensors[f"{name}.blocks"] = torch.from_numpy(data)
        tensors[f"{name}.values"] = torch.from_numpy(values.astype(numpy.float32).reshape(-1))
    save_file(tensors, HERE / "blocks.safetensors")


def matrices(rng, extra):
    stored = load_file(DENSE)
    for name in NAMES:
        yield name, stored[f"{name}.weight"].float()
    yield "extra", torch.from_numpy(rng.normal(size=extra).astype(numpy.float32))


def fp8(rng):
    tensors = {}
    for name, w in matrices(rng, (140, 200)):
        rows, columns = w.shape
        scale = torch.zeros((rows + 127) // 128, (columns + 127) // 128)
        for i in range(scale.shape[0]):
            for j in range(scale.shape[1]):
                scale[i, j] = w[128 * i : 128 * (i + 1), 128 * j : 128 * (j + 1)].abs().max() / 448
        scale = scale.bfloat16() if name == NAMES[0] else scale
        wide = scale.float().repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
        q = (w / wide).clamp(-448, 448).to(torch.float8_e4m3fn)
        tensors[f"{name}.weight"] = q
        tensors[f"{name}.weight_scale_inv"] = scale
        tensors[f"expected.{name}.weight"] = q.float() * wide
    save_file(tensors, HERE / "packed_fp8.safetensors")


def four_bits(w, group, symmetric):
    """Numbers [rows, columns], zero points and scales [groups, rows]."""
    rows, columns = w.shape
    parts = w.reshape(rows, columns // group, group)
    if symmetric:
        scale = (parts.abs().amax(2) / 7).half()
        zero = torch.full_like(scale, 8).int()
    else:
        low, high = parts.amin(2).clamp(max=0), parts.amax(2).clamp(min=0)
        scale = ((high - low) / 15).half()
        zero = (-low / scale.float()).round().clamp(1, 15).int()
    q = (parts / scale.float()[..., None] + zero[..., None]).round().clamp(0, 15).int()
    expected = scale.float()[..., None] * (q - zero[..., None]).float()
    return q.reshape(rows, columns), zero.T, scale.T, expected.reshape(rows, columns)


def pack(values, order=range(8)):
    """Words [n, m / 8] of numbers [n, m]: nibble k of a word is number order[k] of its eight."""
    n, m = values.shape
    eight = values.numpy().astype(numpy.uint32).reshape(n, m // 8, 8)
    words = numpy.zeros((n, m // 8), dtype=numpy.uint32)
    for nibble, which in enumerate(order):
        words |= eight[:, :, which] << numpy.uint32(4 * nibble)
    return torch.from_numpy(words.view(numpy.int32).copy())


def gptq(rng):
    tensors = {}
    for name, w in matrices(rng, (40, 256)):
        group = 128 if name == "extra" else 32
        q, zero, scale, expected = four_bits(w, group, symmetric=name != "extra")
        tensors[f"{name}.qweight"] = pack(q).T.contiguous()
        tensors[f"{name}.qzeros"] = pack(zero - 1)
        tensors[f"{name}.scales"] = scale.contiguous()
        tensors[f"{name}.g_idx"] = (torch.arange(w.shape[1]) // group).int()
        tensors[f"expected.{name}.weight"] = expected
    save_file(tensors, HERE / "packed_gptq.safetensors")


def awq(rng):
    tensors = {}
    for name, w in matrices(rng, (40, 256)):
        group = 128 if name == "extra" else 32
        q, zero, scale, expected = four_bits(w, group, symmetric=False)
        tensors[f"{name}.qweight"] = pack(q.T.contiguous(), AWQ_ORDER)
        tensors[f"{name}.qzeros"] = pack(zero, AWQ_ORDER)
        tensors[f"{name}.scales"] = scale.contiguous()
        tensors[f"expected.{name}.weight"] = expected
    save_file(tensors, HERE / "packed_awq.safetensors")


if __name__ == "__main__":
    for seed, make in enumerate([blocks, fp8, gptq, awq]):
        make(numpy.random.default_rng(seed))

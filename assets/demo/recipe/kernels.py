"""The passes of `kernels.c` as torch functions."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

import torch


def library():
    source = Path(__file__).with_name("kernels.c")
    built = Path(tempfile.gettempdir()) / f"demo-kernels-{os.getuid()}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.so"
    if not built.exists():
        part = built.with_suffix(f".{os.getpid()}")
        subprocess.run(["cc", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", str(source), "-o", str(part), "-lm"], check=True)
        os.replace(part, built)
    return ctypes.CDLL(str(built))


LIBRARY = library()


class Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("b", "l", "hk", "hv", "dk", "dv")]


def call(name, *arguments):
    """Tensors go as pointers, numbers as they are."""
    kept = [a.contiguous() if isinstance(a, torch.Tensor) else a for a in arguments]
    for a, b in zip(arguments, kept):
        assert not isinstance(a, torch.Tensor) or (a.dtype == torch.float32), name
    getattr(LIBRARY, name)(*(ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else ctypes.byref(a) if isinstance(a, Shape) else ctypes.c_long(a) for a in kept))


class RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        x, scale = x.contiguous(), scale.contiguous()
        h = x.shape[-1]
        y, inverse = torch.empty_like(x), x.new_empty(x.numel() // h)
        call("rms_forward", x, scale, y, inverse, len(inverse), h)
        ctx.save_for_backward(x, scale, inverse)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, scale, inverse = ctx.saved_tensors
        dx, dscale = torch.empty_like(x), torch.zeros_like(scale)
        call("rms_backward", x, scale, inverse, dy, dx, dscale, len(inverse), x.shape[-1])
        return dx, dscale


class SwiGlu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        h = x.shape[-1] // 2
        x = x.contiguous()
        y = x.new_empty(*x.shape[:-1], h)
        call("swiglu_forward", x, y, y.numel() // h, h)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        h = x.shape[-1] // 2
        call("swiglu_backward", x, dy, dx, dy.numel() // h, h)
        return dx


class DeltaRule(torch.autograd.Function):
    """From the projected input [B, L, …] to what the output projection takes: one chunk from a zero state."""

    @staticmethod
    def forward(ctx, x, conv, a_log, dt_bias, norm, heads):
        x, taps = x.contiguous(), conv[:, 0].T.contiguous()
        s = Shape(x.shape[0], x.shape[1], *heads)
        q, k = (x.new_empty(s.b, s.hk, s.l, s.dk) for _ in "qk")
        v = x.new_empty(s.b, s.hv, s.l, s.dv)
        g, beta = (x.new_empty(s.b, s.hv, s.l) for _ in range(2))
        call("split_forward", x, taps, a_log, dt_bias, q, k, v, g, beta, s)
        kk, qk, total = k @ k.mT, q @ k.mT, g.cumsum(-1)
        a, w = (x.new_empty(s.b, s.hv, s.l, s.l) for _ in "aw")
        call("mix_forward", kk, qk, total, beta, a, w, s)
        # The solver reads the diagonal as ones.
        u = torch.linalg.solve_triangular(a, beta[..., None] * v, upper=False, unitriangular=True).contiguous()
        o = w @ u
        y = x.new_empty(s.b, s.l, s.hv * s.dv)
        call("close_forward", x, o, norm, y, s)
        ctx.save_for_backward(x, taps, a_log, dt_bias, norm, q, k, v, beta, kk, qk, total, a, w, u, o)
        ctx.shape = s
        return y

    @staticmethod
    def backward(ctx, dy):
        x, taps, a_log, dt_bias, norm, q, k, v, beta, kk, qk, total, a, w, u, o = ctx.saved_tensors
        s = ctx.shape
        dx, do, dnorm = torch.zeros_like(x), torch.empty_like(o), torch.zeros_like(norm)
        call("close_backward", x, o, norm, dy, dx, do, dnorm, s)
        dw, du = do @ u.mT, w.mT @ do
        drhs = torch.linalg.solve_triangular(a.mT, du, upper=True, unitriangular=True).contiguous()
        da = (drhs @ u.mT).neg_()
        dkk, dqk, dg, dbeta = torch.empty_like(a), torch.empty_like(a), torch.empty_like(total), torch.empty_like(beta)
        call("mix_backward", kk, qk, total, beta, da, dw, dkk, dqk, dg, dbeta, s)
        dbeta += (v * drhs).sum(-1)
        r = s.hv // s.hk
        if r > 1:
            dkk, dqk = (t.view(s.b, s.hk, r, s.l, s.l).sum(2) for t in (dkk, dqk))
        dq, dk = dqk @ k, dqk.mT @ q + (dkk + dkk.mT) @ k
        dtaps, da_log, ddt_bias = torch.zeros_like(taps), torch.zeros_like(a_log), torch.zeros_like(dt_bias)
        call("split_backward", x, taps, a_log, dt_bias, dq, dk, beta[..., None] * drhs, dg, dbeta, dx, dtaps, da_log, ddt_bias, s)
        return dx, dtaps.T[:, None], da_log, ddt_bias, dnorm, None

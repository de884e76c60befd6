// What the trunk does between its matrix products, forwards and backwards, in single passes: in plain torch these
// many small steps took longer than the products. `kernels.py` compiles and calls this; all arrays are f32.
#include <math.h>
#include <string.h>

#define EPS 1e-6f

static inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// y = x / rms(x) * scale, rows of h.
void rms_forward(const float *x, const float *scale, float *y, float *inverse, long n, long h) {
    for (long i = 0; i < n; i++, x += h, y += h) {
        float sum = 0;
        for (long j = 0; j < h; j++) sum += x[j] * x[j];
        float inv = inverse[i] = 1.0f / sqrtf(sum / h + EPS);
        for (long j = 0; j < h; j++) y[j] = x[j] * inv * scale[j];
    }
}

void rms_backward(const float *x, const float *scale, const float *inverse, const float *dy, float *dx, float *dscale, long n, long h) {
    for (long i = 0; i < n; i++, x += h, dy += h, dx += h) {
        float inv = inverse[i], shared = 0;
        for (long j = 0; j < h; j++) {
            float product = dy[j] * x[j] * inv;
            dscale[j] += product;
            shared += product * scale[j];
        }
        shared *= inv / h;
        for (long j = 0; j < h; j++) dx[j] = (dy[j] * scale[j] - x[j] * shared) * inv;
    }
}

// y = silu(gate) * up, where each row of x is gate and up of h each.
void swiglu_forward(const float *x, float *y, long n, long h) {
    for (long i = 0; i < n; i++, x += 2 * h, y += h)
        for (long j = 0; j < h; j++) y[j] = x[j] * sigmoid(x[j]) * x[h + j];
}

void swiglu_backward(const float *x, const float *dy, float *dx, long n, long h) {
    for (long i = 0; i < n; i++, x += 2 * h, dx += 2 * h, dy += h)
        for (long j = 0; j < h; j++) {
            float s = sigmoid(x[j]), silu = x[j] * s;
            dx[j] = dy[j] * x[h + j] * (s + silu * (1 - s));
            dx[h + j] = dy[j] * silu;
        }
}

// The gated delta rule. A row of x is q k v (keys twice, values once) | z | write | step; hk key heads of dk, hv value
// heads of dv; 4 taps of convolution.
typedef struct { long b, l, hk, hv, dk, dv; } Shape;
#define TAPS 4
#define MOST 2048

static inline long channels(const Shape *s) { return 2 * s->hk * s->dk + s->hv * s->dv; }
static inline long row(const Shape *s) { return channels(s) + s->hv * s->dv + 2 * s->hv; }

static void convolve(const float *x, const float *conv, const Shape *s, long t, float *y) {
    long c = channels(s), p = row(s);
    memset(y, 0, c * sizeof(float));
    for (long tap = 0; tap < TAPS; tap++) {
        long from = t + tap - (TAPS - 1);
        if (from < 0) continue;
        const float *past = x + from * p, *w = conv + tap * c;
        for (long j = 0; j < c; j++) y[j] += past[j] * w[j];
    }
}

// `conv` is [taps][channels]. q and k come out with unit norm, q scaled.
void split_forward(const float *x, const float *conv, const float *a_log, const float *dt_bias, float *q, float *k, float *v, float *g,
                   float *beta, const Shape *s) {
    float y[MOST];
    long c = channels(s), p = row(s), key = s->hk * s->dk, value = s->hv * s->dv;
    for (long b = 0; b < s->b; b++, x += s->l * p)
        for (long t = 0; t < s->l; t++) {
            convolve(x, conv, s, t, y);
            for (long j = 0; j < c; j++) y[j] *= sigmoid(y[j]);
            for (long part = 0; part < 2; part++)
                for (long h = 0; h < s->hk; h++) {
                    const float *in = y + part * key + h * s->dk;
                    float *out = (part ? k : q) + ((b * s->hk + h) * s->l + t) * s->dk, sum = 0;
                    for (long j = 0; j < s->dk; j++) sum += in[j] * in[j];
                    float by = 1.0f / sqrtf(sum + EPS) * (part ? 1.0f : 1.0f / sqrtf(s->dk));
                    for (long j = 0; j < s->dk; j++) out[j] = in[j] * by;
                }
            const float *tail = x + t * p + c + value;
            for (long h = 0; h < s->hv; h++) {
                long at = (b * s->hv + h) * s->l + t;
                memcpy(v + at * s->dv, y + 2 * key + h * s->dv, s->dv * sizeof(float));
                float raw = tail[s->hv + h] + dt_bias[h];
                g[at] = -expf(a_log[h]) * (raw > 20 ? raw : log1pf(expf(raw)));
                beta[at] = sigmoid(tail[h]);
            }
        }
}

// Adds into dx, which holds zeros where the convolution looks back, and into the gradients of the weights.
void split_backward(const float *x, const float *conv, const float *a_log, const float *dt_bias, const float *dq, const float *dk, const float *dv,
                    const float *dg, const float *dbeta, float *dx, float *dconv, float *da_log, float *ddt_bias, const Shape *s) {
    float y[MOST], act[MOST], dy[MOST];
    long c = channels(s), p = row(s), key = s->hk * s->dk, value = s->hv * s->dv;
    for (long b = 0; b < s->b; b++, x += s->l * p, dx += s->l * p)
        for (long t = 0; t < s->l; t++) {
            convolve(x, conv, s, t, y);
            for (long j = 0; j < c; j++) act[j] = y[j] * sigmoid(y[j]);
            for (long part = 0; part < 2; part++)
                for (long h = 0; h < s->hk; h++) {
                    const float *in = act + part * key + h * s->dk, *d = (part ? dk : dq) + ((b * s->hk + h) * s->l + t) * s->dk;
                    float *out = dy + part * key + h * s->dk, sum = 0, dot = 0;
                    for (long j = 0; j < s->dk; j++) sum += in[j] * in[j], dot += in[j] * d[j];
                    float inv = 1.0f / sqrtf(sum + EPS), by = inv * (part ? 1.0f : 1.0f / sqrtf(s->dk)), shared = dot * inv * inv;
                    for (long j = 0; j < s->dk; j++) out[j] = (d[j] - in[j] * shared) * by;
                }
            const float *tail = x + t * p + c + value;
            float *dtail = dx + t * p + c + value;
            for (long h = 0; h < s->hv; h++) {
                long at = (b * s->hv + h) * s->l + t;
                memcpy(dy + 2 * key + h * s->dv, dv + at * s->dv, s->dv * sizeof(float));
                float raw = tail[s->hv + h] + dt_bias[h], rate = -expf(a_log[h]);
                float draw = dg[at] * rate * sigmoid(raw), write = sigmoid(tail[h]);
                da_log[h] += dg[at] * rate * (raw > 20 ? raw : log1pf(expf(raw)));
                ddt_bias[h] += draw;
                dtail[s->hv + h] = draw;
                dtail[h] = dbeta[at] * write * (1 - write);
            }
            for (long j = 0; j < c; j++) {
                float sg = sigmoid(y[j]);
                dy[j] *= sg + act[j] * (1 - sg);
            }
            for (long tap = 0; tap < TAPS; tap++) {
                long from = t + tap - (TAPS - 1);
                if (from < 0) continue;
                const float *past = x + from * p, *w = conv + tap * c;
                float *dpast = dx + from * p, *dw = dconv + tap * c;
                for (long j = 0; j < c; j++) dpast[j] += dy[j] * w[j], dw[j] += dy[j] * past[j];
            }
        }
}

// From kk and qk [b*hk, l, l]: a = beta_i kk decay below the diagonal, w = qk decay on it and below; zeros elsewhere.
// `total` is the running sum of g.
void mix_forward(const float *kk, const float *qk, const float *total, const float *beta, float *a, float *w, const Shape *s) {
    long l = s->l, r = s->hv / s->hk;
    for (long m = 0; m < s->b * s->hv; m++, total += l, beta += l) {
        const float *kk_m = kk + m / r * l * l, *qk_m = qk + m / r * l * l;
        for (long i = 0; i < l; i++, a += l, w += l) {
            for (long j = 0; j <= i; j++) {
                float decay = expf(total[i] - total[j]);
                a[j] = beta[i] * kk_m[i * l + j] * decay;
                w[j] = qk_m[i * l + j] * decay;
            }
            a[i] = 0;
            memset(a + i + 1, 0, (l - i - 1) * sizeof(float));
            memset(w + i + 1, 0, (l - i - 1) * sizeof(float));
        }
    }
}

// da and dw are read on and below the diagonal only. dkk and dqk are [b*hv, l, l].
void mix_backward(const float *kk, const float *qk, const float *total, const float *beta, const float *da, const float *dw, float *dkk, float *dqk,
                  float *dg, float *dbeta, const Shape *s) {
    long l = s->l, r = s->hv / s->hk;
    for (long m = 0; m < s->b * s->hv; m++, total += l, beta += l, dg += l, dbeta += l) {
        const float *kk_m = kk + m / r * l * l, *qk_m = qk + m / r * l * l;
        memset(dg, 0, l * sizeof(float));
        for (long i = 0; i < l; i++, da += l, dw += l, dkk += l, dqk += l) {
            const float *kk_i = kk_m + i * l, *qk_i = qk_m + i * l;
            float of_beta = 0, of_i = 0;
            for (long j = 0; j < i; j++) {
                float decay = expf(total[i] - total[j]), part = da[j] * kk_i[j] * decay;
                dkk[j] = da[j] * beta[i] * decay;
                dqk[j] = dw[j] * decay;
                float through = part * beta[i] + dw[j] * qk_i[j] * decay;
                of_beta += part;
                of_i += through;
                dg[j] -= through;
            }
            dkk[i] = 0;
            dqk[i] = dw[i];
            memset(dkk + i + 1, 0, (l - i - 1) * sizeof(float));
            memset(dqk + i + 1, 0, (l - i - 1) * sizeof(float));
            dbeta[i] = of_beta;
            dg[i] += of_i;
        }
        // g reaches every later running sum.
        for (long i = l - 2; i >= 0; i--) dg[i] += dg[i + 1];
    }
}

// y [b, l, hv*dv] = norm(o) * weight * silu(z); o [b, hv, l, dv], z inside x.
void close_forward(const float *x, const float *o, const float *weight, float *y, const Shape *s) {
    long p = row(s), value = s->hv * s->dv, z_at = channels(s);
    for (long b = 0; b < s->b; b++)
        for (long t = 0; t < s->l; t++)
            for (long h = 0; h < s->hv; h++) {
                const float *in = o + ((b * s->hv + h) * s->l + t) * s->dv, *z = x + (b * s->l + t) * p + z_at + h * s->dv;
                float *out = y + (b * s->l + t) * value + h * s->dv, sum = 0;
                for (long j = 0; j < s->dv; j++) sum += in[j] * in[j];
                float inv = 1.0f / sqrtf(sum / s->dv + EPS);
                for (long j = 0; j < s->dv; j++) out[j] = in[j] * inv * weight[j] * z[j] * sigmoid(z[j]);
            }
}

void close_backward(const float *x, const float *o, const float *weight, const float *dy, float *dx, float *do_, float *dweight, const Shape *s) {
    long p = row(s), value = s->hv * s->dv, z_at = channels(s);
    for (long b = 0; b < s->b; b++)
        for (long t = 0; t < s->l; t++)
            for (long h = 0; h < s->hv; h++) {
                long at = ((b * s->hv + h) * s->l + t) * s->dv, z_here = (b * s->l + t) * p + z_at + h * s->dv;
                const float *in = o + at, *z = x + z_here, *d = dy + (b * s->l + t) * value + h * s->dv;
                float *out = do_ + at, *dz = dx + z_here, sum = 0, shared = 0;
                for (long j = 0; j < s->dv; j++) sum += in[j] * in[j];
                float inv = 1.0f / sqrtf(sum / s->dv + EPS);
                for (long j = 0; j < s->dv; j++) {
                    float sg = sigmoid(z[j]), silu = z[j] * sg, n = in[j] * inv;
                    dz[j] = d[j] * n * weight[j] * (sg + silu * (1 - sg));
                    dweight[j] += d[j] * n * silu;
                    out[j] = d[j] * weight[j] * silu;
                    shared += out[j] * n;
                }
                shared *= inv / s->dv;
                for (long j = 0; j < s->dv; j++) out[j] = (out[j] - in[j] * shared) * inv;
            }
}

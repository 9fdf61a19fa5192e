#!/usr/bin/env python3
"""Writes cases.npz: inputs, results and gradients of operations, computed in float64 by PyTorch, for tests/op_cases_test.cpp.

For a case NAME: NAME.in0, NAME.in1, ... (inputs), NAME.out, NAME.g (the gradient of the result), NAME.grad0, ... (of floating inputs).
Images and kernels are stored as tensorlite has them, NHWC and OHWI. Needs torch and numpy; run it again only to add cases.
"""
import sys

import numpy as np
import torch
import torch.nn.functional as F

arrays = {}
rng = np.random.default_rng(20)


def normal(*sizes):
    return torch.from_numpy(np.asarray(np.round(rng.standard_normal(sizes), 4)))


def positive(*sizes):
    return torch.from_numpy(np.round(rng.uniform(0.1, 0.9, sizes), 4))


def integers(low, high, *sizes):
    return torch.from_numpy(rng.integers(low, high, sizes))


def add(name, function, *inputs):
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    out = function(*leaves)
    for i, x in enumerate(inputs):
        arrays[f"{name}.in{i}"] = x.numpy()
    arrays[f"{name}.out"] = out.detach().numpy()
    if not out.requires_grad:
        return
    g = torch.from_numpy(np.asarray(np.round(rng.standard_normal(tuple(out.shape)), 4)))
    arrays[f"{name}.g"] = g.numpy()
    out.backward(g)
    for i, x in enumerate(leaves):
        if x.grad is not None:
            arrays[f"{name}.grad{i}"] = x.grad.numpy()


def nchw(x):
    return x.permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


# ------------------------------------------------------------------------------------------------------------------ elementwise
for name in ("abs acos acosh asin asinh atan atanh cos cosh erf erfc exp exp2 expm1 log log10 log1p log2 neg reciprocal rsqrt sigmoid sin "
             "sinh sqrt square tan tanh").split():
    x = positive(3, 7)
    add(name, getattr(torch, name), x + 1 if name == "acosh" else x)
for name in "relu relu6 selu gelu silu mish softplus softsign hardswish logsigmoid elu leaky_relu".split():
    add(name, getattr(F, name), normal(4, 9) * 3)
add("hardsigmoid", lambda x: F.relu6(x + 3) / 6, normal(4, 9) * 3)  # F.hardsigmoid multiplies by a float32 sixth
add("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), normal(4, 9) * 2)
add("clamp", lambda x: torch.clamp(x, -0.5, 0.7), normal(5, 6))
for name in "floor ceil round trunc sign".split():
    arrays[f"{name}.in0"] = (normal(4, 9) * 3).numpy()
    arrays[f"{name}.out"] = getattr(np, "rint" if name == "round" else name)(arrays[f"{name}.in0"])
for name in "add sub mul div maximum minimum atan2 hypot".split():
    add(name, getattr(torch, name), normal(4, 1, 5), normal(3, 1) + 3)
add("pow", torch.pow, positive(4, 5), normal(5))
add("pow_scalar", lambda x: x**3, normal(4, 5))
add("remainder", torch.remainder, normal(4, 5) * 3, positive(5) + 0.5)
add("where", lambda a, b: torch.where(a > b, a * 2, b), normal(4, 5), normal(5))

# -------------------------------------------------------------------------------------------------------------------- reductions
add("sum_axes", lambda x: x.sum((0, 2)), normal(3, 4, 5))
add("mean_keepdim", lambda x: x.mean(1, keepdim=True), normal(3, 4, 5))
add("prod", lambda x: x.prod(1), normal(3, 4))
add("max", lambda x: x.amax((0, 2)), normal(3, 4, 5))
add("min", lambda x: x.amin(1), normal(3, 4, 5))
add("var", lambda x: x.var((0, 2)), normal(3, 4, 5))
add("std_biased", lambda x: x.std(1, correction=0), normal(3, 4, 5))
add("norm", lambda x: torch.linalg.vector_norm(x, dim=1), normal(3, 4))
add("logsumexp", lambda x: torch.logsumexp(x, (0, 1)), normal(3, 4, 5))
add("cumsum", lambda x: x.cumsum(1), normal(3, 4, 2))
add("argmax", lambda x: x.argmax(1), normal(3, 6, 2).detach())

# --------------------------------------------------------------------------------------------------------------- products, shape
add("matmul", torch.matmul, normal(5, 7), normal(7, 3))
add("matmul_batched", torch.matmul, normal(2, 1, 4, 5), normal(3, 5, 2))
add("matmul_vector", torch.matmul, normal(2, 4, 5), normal(5))
add("vector_matmul", torch.matmul, normal(5), normal(3, 5, 2))
add("linear", F.linear, normal(2, 3, 5), normal(4, 5), normal(4))
add("pad", lambda x: F.pad(x, (1, 2, 0, 1), value=0.5), normal(3, 4))
add("flip", lambda x: x.flip((0, 2)), normal(2, 3, 4))
add("gather", lambda x, i: torch.gather(x, 1, i), normal(3, 5), integers(0, 5, 3, 4))
add("index_select", lambda x, i: torch.index_select(x, 1, i), normal(3, 5, 2), integers(0, 5, 7))
add("embedding", lambda w, i: F.embedding(i, w), normal(6, 3), integers(0, 6, 2, 4))
add("concatenate", lambda a, b: torch.cat((a, b), 1), normal(2, 3), normal(2, 4))

# ------------------------------------------------------------------------------------------------------------ convolution, pooling
def conv(x, w, b, **options):
    return nhwc(F.conv2d(nchw(x), nchw(w), b, **options))


add("conv2d", conv, normal(2, 7, 6, 3), normal(4, 3, 3, 3), normal(4))
add("conv2d_stride_pad", lambda x, w, b: conv(x, w, b, stride=(2, 1), padding=(1, 2)), normal(2, 7, 6, 3), normal(4, 3, 3, 3), normal(4))
add("conv2d_dilation", lambda x, w, b: conv(x, w, b, dilation=2), normal(1, 9, 8, 2), normal(3, 3, 2, 2), normal(3))
add("conv2d_groups", lambda x, w, b: conv(x, w, b, groups=2, padding=1), normal(2, 5, 5, 4), normal(6, 3, 3, 2), normal(6))
add("conv2d_depthwise", lambda x, w, b: conv(x, w, b, groups=4, stride=2, padding=1), normal(2, 6, 5, 4), normal(4, 3, 3, 1), normal(4))
add("conv2d_1x1", conv, normal(2, 4, 4, 5), normal(3, 1, 1, 5), normal(3))
add("conv2d_asymmetric", lambda x, w, b: nhwc(F.conv2d(F.pad(nchw(x), (0, 1, 2, 0)), nchw(w), b, stride=2)), normal(2, 5, 6, 3),
    normal(4, 3, 3, 3), normal(4))
add("conv_transpose2d", lambda x, w, b: nhwc(F.conv_transpose2d(nchw(x), w.permute(0, 3, 1, 2), b, stride=2, padding=1, output_padding=1)),
    normal(2, 4, 3, 3), normal(3, 3, 3, 2), normal(2))
add("max_pool2d", lambda x: nhwc(F.max_pool2d(nchw(x), 2)), normal(2, 5, 6, 3))
add("max_pool2d_overlap", lambda x: nhwc(F.max_pool2d(nchw(x), 3, 2, 1, dilation=1, ceil_mode=True)), normal(2, 6, 7, 3))
add("avg_pool2d", lambda x: nhwc(F.avg_pool2d(nchw(x), 3, 2, 1, ceil_mode=True, count_include_pad=False)), normal(2, 6, 7, 3))
add("adaptive_avg_pool2d", lambda x: nhwc(F.adaptive_avg_pool2d(nchw(x), (3, 2))), normal(2, 7, 5, 3))

# ---------------------------------------------------------------------------------------------------------- normalisation, losses
add("softmax", lambda x: F.softmax(x, 1), normal(3, 5, 2) * 3)
add("log_softmax", lambda x: F.log_softmax(x, -1), normal(3, 5) * 3)
add("batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), normal(6, 4) * 2 + 1, normal(4), normal(4))
add("layer_norm", lambda x, w, b: F.layer_norm(x, (3, 4), w, b), normal(5, 3, 4), normal(3, 4), normal(3, 4))
labels = torch.tensor([0, 3, -100, 2, 1])
add("cross_entropy", F.cross_entropy, normal(5, 4) * 2, labels)
add("cross_entropy_smooth", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, reduction="sum"), normal(5, 4) * 2, labels)
add("cross_entropy_soft", F.cross_entropy, normal(3, 4), F.softmax(normal(3, 4), 1).detach())
add("nll_loss", lambda x, t: F.nll_loss(x, t, reduction="none"), normal(5, 4), labels)
add("mse_loss", F.mse_loss, normal(3, 4), normal(3, 4))
add("l1_loss", F.l1_loss, normal(3, 4), normal(3, 4))
add("smooth_l1_loss", lambda a, b: F.smooth_l1_loss(a, b, beta=0.5), normal(3, 4), normal(3, 4))
add("bce_with_logits", F.binary_cross_entropy_with_logits, normal(3, 4) * 4, positive(3, 4))

# ------------------------------------------------------------------------------------------------------- recurrent layers, CTC
def recurrent(kind, layers=1, bidirectional=False, batch_first=False, **options):
    """A function of x, lengths (integers, in the layer's order, or none) and the weights that gives output and final states in one row."""

    def run(x, *rest):
        lengths = rest[0] if rest and not rest[0].is_floating_point() else None
        weights = rest[1:] if lengths is not None else rest
        module = kind(x.shape[2], weights[1].shape[1], layers, bidirectional=bidirectional, batch_first=batch_first, **options).double()
        named = dict(zip((name for name, _ in module.named_parameters()), weights))
        if lengths is not None:
            x = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)
        out, state = torch.func.functional_call(module, named, (x,))
        if lengths is not None:
            out, _ = torch.nn.utils.rnn.pad_packed_sequence(out, batch_first)
        return torch.cat([t.flatten() for t in (out, *(state if isinstance(state, tuple) else (state,)))])

    return run


def weights(gates, inputs, hidden, layers=1, directions=1):
    all = []
    for i in range(layers * directions):
        width = inputs if i < directions else directions * hidden
        all += [normal(gates * hidden, width) / 2, normal(gates * hidden, hidden) / 2, normal(gates * hidden) / 2, normal(gates * hidden) / 2]
    return all


def gru_reset_before(x, w_ih, w_hh, b_ih, b_hh):
    h, out, n = torch.zeros(x.shape[1], w_hh.shape[1], dtype=x.dtype), [], w_hh.shape[1]
    for row in x:
        a, b = row @ w_ih.T + b_ih, h @ w_hh[: 2 * n].T + b_hh[: 2 * n]
        r, z = torch.sigmoid(a[:, :n] + b[:, :n]), torch.sigmoid(a[:, n : 2 * n] + b[:, n:])
        h = (1 - z) * torch.tanh(a[:, 2 * n :] + (r * h) @ w_hh[2 * n :].T + b_hh[2 * n :]) + z * h
        out.append(h)
    return torch.cat([torch.stack(out).flatten(), h.flatten()])


lengths = torch.tensor([4, 2, 3])
add("lstm", recurrent(torch.nn.LSTM), normal(4, 3, 5), *weights(4, 5, 3))
add("lstm_stacked", recurrent(torch.nn.LSTM, 2, True, True), normal(3, 4, 2), lengths, *weights(4, 2, 3, 2, 2))
add("gru", recurrent(torch.nn.GRU), normal(4, 3, 5), *weights(3, 5, 3))
add("gru_stacked", recurrent(torch.nn.GRU, 2, True), normal(4, 3, 2), lengths, *weights(3, 2, 3, 2, 2))
add("gru_reset_before", gru_reset_before, normal(4, 3, 5), *weights(3, 5, 3))
add("rnn", recurrent(torch.nn.RNN, 1, True), normal(4, 3, 5), lengths, *weights(1, 5, 3, 1, 2))
add("rnn_relu", recurrent(torch.nn.RNN, nonlinearity="relu"), normal(4, 3, 5), *weights(1, 5, 3))


def ctc(blank, **options):
    return lambda x, t, f, c: F.ctc_loss(F.log_softmax(x, 2), t, f, c, blank=blank, **options)


targets, frames, counts = torch.tensor([[1, 1, 2], [3, 1, 3], [2, 2, 2], [3, 2, 1]]), torch.tensor([6, 4, 2, 5]), torch.tensor([3, 2, 2, 0])
add("ctc_loss", ctc(0), normal(6, 4, 5), targets, torch.tensor([6, 4, 5, 5]), counts)
add("ctc_loss_each", ctc(4, reduction="none", zero_infinity=True), normal(6, 4, 5) * 3, targets, frames, counts)
add("ctc_loss_with_logits", ctc(4, reduction="sum", zero_infinity=True), normal(6, 4, 5) * 3, targets, frames, counts)

np.savez_compressed(sys.argv[1] if len(sys.argv) > 1 else "cases.npz", **arrays)
print(len({key.split(".")[0] for key in arrays}), "cases")

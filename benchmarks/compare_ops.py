#!/usr/bin/env python3
"""The rows of op_bench with PyTorch, in the same run, and the ratios.

    python3 benchmarks/compare_ops.py --program build/release/bin/op_bench --device CPU:0|GPU:0 [--threads N] [--filter REGEX] [--out FILE]
A ratio above 1 means that tensorlite is faster. PyTorch gets the faster of its two memory layouts in every convolution row. On a GPU both are
timed over batches of calls between two waits; medians. Needs torch and numpy.
"""
import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import tempfile
import time

import torch
import torch.nn.functional as F


def seconds(body, gpu, least=0.15):
    """Median seconds of one call."""
    for _ in range(3):
        body()
    sync = torch.cuda.synchronize if gpu else (lambda: None)
    sync()
    begin = time.perf_counter()
    body()
    sync()
    once = time.perf_counter() - begin
    calls = max(1, min(200, int(0.01 / max(once, 1e-7)))) if gpu else 1
    times, spent = [], 0.0
    while len(times) < 5 or (spent < least and len(times) < 200):
        sync()
        begin = time.perf_counter()
        for _ in range(calls):
            body()
        sync()
        times.append((time.perf_counter() - begin) / calls)
        spent += times[-1] * calls
    return statistics.median(times)


def conv_row(shape, train, dtype, device, channels_last):
    n, c, size, o, k, stride, pad = shape
    layout = torch.channels_last if channels_last else torch.contiguous_format
    x = torch.rand(n, c, size, size, device=device).to(dtype).to(memory_format=layout)
    w = (torch.rand(o, c, k, k, device=device) - 0.5).to(dtype).to(memory_format=layout)
    b = torch.rand(o, device=device).to(dtype)
    if not train:
        return lambda: F.conv2d(x, w, b, stride, pad)
    x.requires_grad_(c > 3), w.requires_grad_(), b.requires_grad_()
    out = (size + 2 * pad - k) // stride + 1
    g = torch.rand(n, o, out, out, device=device).to(dtype).to(memory_format=layout)

    def step():
        x.grad = w.grad = b.grad = None
        F.conv2d(x, w, b, stride, pad).backward(g)

    return step


def elementwise_row(name, device, elements):
    x = torch.rand(elements // 1024, 1024, device=device)
    return {
        "add": lambda: x + x, "relu": lambda: torch.relu(x), "exp": lambda: torch.exp(x), "gelu": lambda: F.gelu(x), "copy": lambda: x.clone(),
        "sum": lambda: x.sum(), "row_softmax": lambda: torch.softmax(x, -1), "column_sum": lambda: x.sum(0),
        "transpose_copy": lambda: x.t().contiguous(), "broadcast_add": lambda: x + x[0],
    }[name]


def torch_seconds(row, kind, device, gpu):
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = kind == "tf32"
    if row.startswith("gemm_"):
        m, n, k = map(int, row[5:].split("x"))
        a, b = torch.rand(m, k, device=device).to(dtype), torch.rand(k, n, device=device).to(dtype)
        return seconds(lambda: a @ b, gpu)
    if row.startswith("conv"):
        shape = tuple(map(int, row.replace("conv_train_", "").replace("conv_", "").split("_")))
        return min(seconds(conv_row(shape, row.startswith("conv_train"), dtype, device, last), gpu) for last in (False, True))
    return seconds(elementwise_row(row, device, 1 << (28 if gpu else 25)), gpu)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/release/bin/op_bench")
    parser.add_argument("--device", default="CPU:0")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--filter", default=".*")
    parser.add_argument("--out")
    args = parser.parse_args()
    gpu = args.device.startswith("GPU")
    torch.set_num_threads(args.threads)
    torch.backends.cudnn.benchmark = False
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        subprocess.run([args.program, f"--benchmark_filter=({args.filter}).*/{args.device}", f"--benchmark_out={result.name}", "--benchmark_out_format=json",
                        "--benchmark_min_time=0.1", "--benchmark_repetitions=3", "--benchmark_report_aggregates_only=true"],
                       check=True, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": str(args.threads)})
        with open(result.name) as file:
            found = json.load(file)["benchmarks"]
    rows = []
    for entry in found:
        if entry.get("aggregate_name") != "median":
            continue
        row, kind, _ = re.sub("_median$", "", entry["run_name"]).replace("/manual_time", "").split("/")
        ours, theirs = entry["real_time"] * 1e-6, torch_seconds(row, kind, "cuda" if gpu else "cpu", gpu)
        rows.append({"row": row, "kind": kind, "tensorlite_us": ours * 1e6, "torch_us": theirs * 1e6, "ratio": theirs / ours})
        print(f"{row:32} {kind:9} {ours * 1e6:10.1f} us  PyTorch {theirs * 1e6:10.1f} us  ratio {theirs / ours:5.2f}", flush=True)
    print(f"{sum(r['ratio'] >= 1 for r in rows)} of {len(rows)} rows at least as fast as PyTorch, "
          f"{sum(r['ratio'] < 0.97 for r in rows)} below 0.97")
    if args.out:
        with open(args.out, "w") as file:
            json.dump({"date": datetime.date.today().isoformat(), "device": torch.cuda.get_device_name() if gpu else f"{args.threads} CPU threads",
                       "torch": torch.__version__, "command": "benchmarks/compare_ops.py", "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()

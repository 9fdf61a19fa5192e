#!/usr/bin/env python3
"""One training epoch of the digit network (PyTorch's example model, batch 64), tensorlite against PyTorch on the same threads.

The two alternate in one run; medians and their ratio are printed and, with --out, written as JSON.
    python3 benchmarks/compare_torch.py --program build/release/bin/mnist_cnn --data DIR [--threads 1 2 16] [--repeats 3] [--limit N] [--out FILE]
DIR holds the four IDX files (.gz). Needs torch and numpy. PyTorch has its batches ready in memory and gets its faster memory layout
(channels_last), eager and, with --compile, compiled by torch.compile.
"""
import argparse
import datetime
import gzip
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time

import numpy as np


def read_idx(path):
    with gzip.open(path, "rb") as file:
        data = file.read()
    dims = data[3]
    sizes = np.frombuffer(data, ">i4", dims, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dims).reshape(sizes)


def cpu_name():
    with open("/proc/cpuinfo") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), platform.processor())


def make_model(torch):
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
                         nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10), nn.LogSoftmax(1))


def torch_epoch(torch, images, labels, threads, compiled):
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = make_model(torch).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    step_model = torch.compile(model) if compiled else model

    def step(i):
        x = images[i:i + 64].to(memory_format=torch.channels_last)
        optimizer.zero_grad()
        loss = torch.nn.functional.nll_loss(step_model(x), labels[i:i + 64])
        loss.backward()
        optimizer.step()
        return loss.item()

    for i in range(0, 640, 64):
        step(i)
    begin = time.perf_counter()
    for i in range(0, len(images), 64):
        step(i)
    return time.perf_counter() - begin


def tensorlite_epoch(program, data, threads, limit):
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        command = [program, "--data", data, "--model", "pytorch", "--epochs", "1", "--seed", "1", "--device", "cpu", "--threads", str(threads),
                   "--json", result.name]
        if limit:
            command += ["--limit", str(limit)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OMP_")}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        with open(result.name) as file:
            return json.load(file)["runs"][0]["epochs"][0]["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/release/bin/mnist_cnn")
    parser.add_argument("--data", required=True)
    parser.add_argument("--threads", type=int, nargs="+", default=[os.cpu_count()])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()
    import torch

    images = read_idx(os.path.join(args.data, "train-images-idx3-ubyte.gz"))
    labels = torch.from_numpy(read_idx(os.path.join(args.data, "train-labels-idx1-ubyte.gz")).astype(np.int64))
    count = args.limit or len(images)
    images = ((torch.from_numpy(images[:count].astype(np.float32)) / 255 - 0.1307) / 0.3081).unsqueeze(1).contiguous()
    labels = labels[:count]
    rows = []
    for threads in args.threads:
        times = {"tensorlite": [], "torch": [], **({"torch.compile": []} if args.compile else {})}
        for _ in range(args.repeats):
            times["tensorlite"].append(tensorlite_epoch(args.program, args.data, threads, args.limit))
            times["torch"].append(torch_epoch(torch, images, labels, threads, False))
            if args.compile:
                times["torch.compile"].append(torch_epoch(torch, images, labels, threads, True))
        medians = {name: statistics.median(values) for name, values in times.items()}
        rows.append({"threads": threads, "images": count, "seconds": times, "median": medians,
                     "torch_over_tensorlite": medians["torch"] / medians["tensorlite"]})
        print(f"{threads} threads, {count} images: " + ", ".join(f"{n} {m:.2f} s" for n, m in medians.items()) +
              f"; PyTorch / tensorlite {rows[-1]['torch_over_tensorlite']:.2f}", flush=True)
    if args.out:
        with open(args.out, "w") as file:
            json.dump({"date": datetime.date.today().isoformat(), "cpu": cpu_name(), "cores": os.cpu_count(), "torch": torch.__version__,
                       "command": "benchmarks/compare_torch.py", "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()

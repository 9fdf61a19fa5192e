#!/usr/bin/env python3
"""One training epoch of the digit networks, tensorlite against PyTorch on the same threads.

They alternate in one run; medians and the ratio to PyTorch's fastest way are printed and, with --out, written as JSON.
    python3 benchmarks/compare_torch.py --program build/release/bin/mnist_cnn --data DIR [--model pytorch ghouzam] [--batch 64 128]
                                        [--threads 1 2 16] [--repeats 3] [--limit N] [--compile] [--out FILE]
DIR holds the four IDX files (.gz). Needs torch and numpy. PyTorch has its batches ready in memory and is measured in both memory layouts
(NCHW and channels_last), eager and, with --compile, compiled by torch.compile.
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


def make_model(torch, name):
    nn = torch.nn
    if name == "pytorch":
        return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
                             nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10), nn.LogSoftmax(1))
    return nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Dropout(0.25), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(), nn.Linear(3136, 256), nn.ReLU(), nn.Dropout(0.5),
                         nn.Linear(256, 10), nn.LogSoftmax(1))


def torch_epoch(torch, images, labels, case, layout, compiled):
    torch.set_num_threads(case["threads"])
    torch.manual_seed(1)
    model = make_model(torch, case["model"]).to(memory_format=layout)
    optimizer = (torch.optim.Adadelta(model.parameters(), lr=1.0) if case["model"] == "pytorch" else
                 torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.9))
    step_model, batch = torch.compile(model) if compiled else model, case["batch"]

    def step(i):
        x = images[i:i + batch].to(memory_format=layout)
        optimizer.zero_grad()
        loss = torch.nn.functional.nll_loss(step_model(x), labels[i:i + batch])
        loss.backward()
        optimizer.step()
        return loss.item()

    for i in range(10):
        step(i * batch % (len(images) - batch))
    step((len(images) - 1) // batch * batch)  # the last one may be smaller
    begin = time.perf_counter()
    for i in range(0, len(images), batch):
        step(i)
    return time.perf_counter() - begin


def tensorlite_epoch(program, data, case, limit):
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        command = [program, "--data", data, "--model", case["model"], "--batch", str(case["batch"]), "--epochs", "1", "--seed", "1",
                   "--device", "cpu", "--threads", str(case["threads"]), "--json", result.name]
        if limit:
            command += ["--limit", str(limit)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OMP_")}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        with open(result.name) as file:
            return json.load(file)["runs"][0]["epochs"][0]["seconds"]


def measure(torch, images, labels, case, args):
    """One row: tensorlite and every way of PyTorch in turn, `repeats` times."""
    ways = {"torch": (torch.contiguous_format, False), "torch channels_last": (torch.channels_last, False)}
    if args.compile:
        ways |= {"torch.compile": (torch.contiguous_format, True), "torch.compile channels_last": (torch.channels_last, True)}
    times = {name: [] for name in ["tensorlite", *ways]}
    for _ in range(args.repeats):
        times["tensorlite"].append(tensorlite_epoch(args.program, args.data, case, args.limit))
        for name, (layout, compiled) in ways.items():
            times[name].append(torch_epoch(torch, images, labels, case, layout, compiled))
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratio = {name: min(m for n, m in medians.items() if n.startswith(name + " ") or n == name) / medians["tensorlite"]
             for name in ("torch", "torch.compile") if name in medians}
    print(f"{case['model']}, batch {case['batch']}, {case['threads']} threads, {len(images)} images: " +
          ", ".join(f"{n} {m:.2f} s" for n, m in medians.items()) + "; " +
          ", ".join(f"{n} / tensorlite {r:.2f}" for n, r in ratio.items()), flush=True)
    return {**case, "images": len(images), "seconds": times, "median": medians, "torch_over_tensorlite": ratio["torch"],
            **({"compile_over_tensorlite": ratio["torch.compile"]} if args.compile else {})}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/release/bin/mnist_cnn")
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", nargs="+", choices=["pytorch", "ghouzam"], default=["pytorch"])
    parser.add_argument("--batch", type=int, nargs="+", default=[64])
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
    rows = [measure(torch, images, labels, {"model": model, "batch": batch, "threads": threads}, args)
            for model in args.model for batch in args.batch for threads in args.threads]
    if args.out:
        with open(args.out, "w") as file:
            json.dump({"date": datetime.date.today().isoformat(), "cpu": cpu_name(), "cores": os.cpu_count(), "torch": torch.__version__,
                       "command": "benchmarks/compare_torch.py", "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()

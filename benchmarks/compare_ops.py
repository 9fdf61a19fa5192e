#!/usr/bin/env python3
"""The rows of op_bench with PyTorch beside them, row by row, and the ratios.

    python3 benchmarks/compare_ops.py [--program FILE] [--device CPU:0|GPU:0] [--threads N] [--filter REGEX] [--autotune SECONDS] [--out FILE]
A ratio above 1 means that tensorlite is faster. The two alternate within each row and the medians over all batches are compared; PyTorch
gets the faster of its two memory layouts in every convolution row. On a GPU a batch is many calls between two waits for it. `share` is that
of the bandwidth of PyTorch's device-to-device copy of the same size. Then, on a GPU, the rows below 1 are measured with set_autotune(true) for
at most --autotune seconds; with --out the library's log, with the algorithms it chose, goes to FILE.log.
Rows named host_ give the time in which small calls are made without waiting for them. A row that fails prints why and the rest goes on.
Needs torch and numpy.
"""
import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/release/bin/op_bench")
    parser.add_argument("--device", default="CPU:0")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--filter", default="", help="regular expression over 'row kind'")
    parser.add_argument("--seconds", type=float, help="per measurement (default 0.04 on a GPU, 0.1 on a CPU)")
    parser.add_argument("--rounds", type=int, help="alternations within a row (default 3)")
    parser.add_argument("--autotune", type=float, default=40)
    parser.add_argument("--out")
    args = parser.parse_args()
    args.gpu = args.device.upper().startswith("GPU")
    args.seconds = args.seconds or (0.04 if args.gpu else 0.1)
    args.rounds = args.rounds or 3
    return args


class Tensorlite:
    """op_bench --serve."""

    def __init__(self, args):
        self.args = args
        self.log = open(args.out + ".log", "w") if args.out else subprocess.DEVNULL
        self.start()

    def start(self):
        self.process = subprocess.Popen([self.args.program, "--serve", self.args.device], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True,
                                        env={"TENSORLITE_LOG": "info", **os.environ, "OMP_NUM_THREADS": str(self.args.threads)})

    def ask(self, question):
        try:
            self.process.stdin.write(question + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self.process.wait()
            self.start()
            raise RuntimeError(f"op_bench ended with status {code}")
        if line.startswith("error"):
            raise RuntimeError(line[6:].strip())
        return line.split()

    def rows(self):
        found = [self.ask("rows")]
        while found[-1] != ["end"]:
            found.append(self.process.stdout.readline().split())
        return found[:-1]

    def prepare(self, row, kind, autotune=False):
        return [float(word) for word in self.ask(f"prepare {row} {kind} {int(autotune)}")[1:]]

    def times(self, question):
        return [float(word) for word in self.ask(question)]


class Torch:
    """The same bodies and the same way to time them."""

    def __init__(self, args):
        self.gpu, self.device = args.gpu, "cuda" if args.gpu else "cpu"
        self.sync = torch.cuda.synchronize if args.gpu else (lambda: None)
        self.bodies = []

    def prepare(self, row, kind):
        """One body, or one per memory layout."""
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = kind == "tf32"
        self.bodies = []
        self.bodies = [(body, self.batch_size(body)) for body in self.bodies_of(row, torch.bfloat16 if kind == "bfloat16" else torch.float32)]

    def bodies_of(self, row, dtype):
        if row.startswith("gemm_"):
            m, n, k = map(int, row[5:].split("x"))
            a, b = torch.rand(m, k, device=self.device).to(dtype), torch.rand(k, n, device=self.device).to(dtype)
            return [lambda: a @ b]
        if row.startswith("conv"):
            shape = tuple(map(int, re.findall(r"\d+", row)))
            return [self.conv(shape, row, dtype, last) for last in (False, True)]
        if row == "host_conv_8":
            return [self.conv((1, 8, 8, 8, 3, 1, 1), "conv", dtype, last) for last in (False, True)]
        if row == "host_matmul_64":
            x = torch.rand(64, 64, device=self.device)
            return [lambda: x @ x]
        if row.startswith(("lstm_", "gru_")):
            return [self.recurrent(row)]
        if row.startswith("ctc_"):
            return [self.ctc(row)]
        return [self.elementwise(row)]

    def recurrent(self, row):
        steps, n, inputs, hidden, layers = map(int, re.findall(r"\d+", row))
        kind = torch.nn.LSTM if row.startswith("lstm") else torch.nn.GRU
        layer = kind(inputs, hidden, layers, bidirectional=True, device=self.device)
        x, g = torch.rand(steps, n, inputs, device=self.device, requires_grad=True), torch.rand(steps, n, 2 * hidden, device=self.device)

        def step():
            layer.zero_grad()
            x.grad = None
            layer(x)[0].backward(g)

        return step

    def ctc(self, row):
        frames, n, classes, labels = map(int, re.findall(r"\d+", row))
        x = torch.rand(frames, n, classes, device=self.device, requires_grad=True)
        targets = torch.randint(1, classes, (n, labels), device=self.device)
        lengths = torch.full((n,), frames), torch.full((n,), labels)

        def step():
            x.grad = None
            F.ctc_loss(F.log_softmax(x, 2), targets, *lengths).backward()

        return step

    def conv(self, shape, row, dtype, channels_last):
        n, c, size, o, k, stride, pad = shape
        layout = torch.channels_last if channels_last else torch.contiguous_format
        x = torch.rand(n, c, size, size, device=self.device).to(dtype).to(memory_format=layout)
        w = (torch.rand(o, c, k, k, device=self.device) - 0.5).to(dtype).to(memory_format=layout)
        b = None if row.startswith("conv_plain") else torch.rand(o, device=self.device).to(dtype)
        if not row.startswith("conv_train"):
            return lambda: F.conv2d(x, w, b, stride, pad)
        x.requires_grad_(c > 3), w.requires_grad_(), b.requires_grad_()
        out = (size + 2 * pad - k) // stride + 1
        g = torch.rand(n, o, out, out, device=self.device).to(dtype).to(memory_format=layout)

        def step():
            x.grad = w.grad = b.grad = None
            F.conv2d(x, w, b, stride, pad).backward(g)

        return step

    def elementwise(self, row):
        small = row.startswith("host_")
        name = row[5:-2] if small else row
        x = torch.rand(1 - (row == "host_relu_0"), 8, device=self.device) if small else torch.rand((1 << (28 if self.gpu else 25)) // 1024, 1024, device=self.device)
        y = torch.rand_like(x) if row == "add" else x[0] if row == "broadcast_add" else x
        return {
            "add": lambda: x + y, "relu": lambda: torch.relu(x), "exp": lambda: torch.exp(x), "gelu": lambda: F.gelu(x),
            "copy": lambda: x.clone(), "sum": lambda: x.sum(), "row_softmax": lambda: torch.softmax(x, -1), "column_sum": lambda: x.sum(0),
            "transpose_copy": lambda: x.t().contiguous(), "broadcast_add": lambda: x + y,
            "empty": lambda: torch.empty(1, 8, device=self.device), "kernel": lambda: torch.relu_(x),
        }[name]

    def timed(self, body, calls, wait=True):
        self.sync()
        begin = time.perf_counter()
        for _ in range(calls):
            body()
        if wait:
            self.sync()
        return time.perf_counter() - begin

    def batch_size(self, body):
        self.timed(body, 2)
        once = self.timed(body, 3) / 3
        return max(1, min(200, int(0.006 / once))) if self.gpu else 1

    def measure(self, index, least):
        body, calls = self.bodies[index]
        times, spent = [], 0
        while len(times) < 3 or (spent < least and len(times) < 1000):
            batch = self.timed(body, calls)
            spent += batch
            times.append(batch / calls)
        return times

    def host(self, index, calls):
        return [self.timed(self.bodies[index][0], calls, wait=False) / calls for _ in range(9)]


def measure_row(ours, theirs, row, kind, args):
    """Microseconds of both, alternating."""
    work = ours.prepare(row, kind)
    theirs.prepare(row, kind)
    our_times, their_times = [], [[] for _ in theirs.bodies]
    for _ in range(args.rounds):
        if row.startswith("host_"):
            our_times += ours.times("host 200")
        else:
            our_times += ours.times(f"measure {args.seconds}")
        for index, times in enumerate(their_times):
            times += theirs.host(index, 200) if row.startswith("host_") else theirs.measure(index, args.seconds)
    found = {"row": row, "kind": kind, "tensorlite_us": statistics.median(our_times) * 1e6,
             "torch_us": min(statistics.median(times) for times in their_times) * 1e6}
    found["ratio"] = found["torch_us"] / found["tensorlite_us"]
    if work[0]:
        found["gflops"] = work[0] / found["tensorlite_us"] * 1e-3
    if work[1]:
        found["gbps"] = work[1] / found["tensorlite_us"] * 1e-3
    return found


def autotune(ours, rows, args):
    """Adds autotuned_us to the products that are slower than PyTorch's, while there is time."""
    begin = time.perf_counter()
    for found in rows:
        if found["ratio"] >= 1 or "gflops" not in found:
            continue
        if time.perf_counter() - begin > args.autotune:
            print("no time to autotune the rest")
            return
        try:
            ours.prepare(found["row"], found["kind"], True)
            found["autotuned_us"] = statistics.median(ours.times(f"measure {args.seconds}")) * 1e6
            print(f"{found['row']:34} {found['kind']:8} autotuned {found['autotuned_us']:10.2f} us  ratio {found['torch_us'] / found['autotuned_us']:5.2f}",
                  flush=True)
        except RuntimeError as error:
            print(f"{found['row']:34} {found['kind']:8} autotuned failed: {error}", flush=True)


def copy_bandwidth(theirs, args):
    """GB/s, bytes read and written, of copying as much as an elementwise row has."""
    x = torch.rand(1 << (28 if args.gpu else 25), device=theirs.device)
    y = torch.empty_like(x)
    theirs.bodies = [(lambda: y.copy_(x), 3)]
    theirs.timed(lambda: y.copy_(x), 3)
    return 2 * x.nbytes / statistics.median(theirs.measure(0, 0.1)) * 1e-9


def seconds_to_first_product(args):
    """From program start to the first result of a product, best of three."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        with subprocess.Popen([args.program, "--first", args.device], stdout=subprocess.PIPE, text=True) as process:
            line = process.stdout.readline()
            times.append(time.perf_counter() - begin)
        if line.strip() != "64":
            raise RuntimeError(f"the first product gave '{line.strip()}'")
    return min(times)


def text_of(found, ceiling):
    text = (f"{found['row']:34} {found['kind']:8} {found['tensorlite_us']:10.2f} us  PyTorch {found['torch_us']:10.2f} us  "
            f"ratio {found['ratio']:5.2f}")
    if "gflops" in found:
        text += f"  {found['gflops'] * 1e-3:7.2f} TFLOP/s"
    if "gbps" in found:
        text += f"  {found['gbps']:7.0f} GB/s  share {found['gbps'] / ceiling:4.2f}"
    return text + ("  <" if found["ratio"] < 0.97 else "")


def main():
    args = parse_arguments()
    begin = time.perf_counter()
    torch.set_num_threads(args.threads)
    torch.backends.cudnn.benchmark = False
    report = {"date": datetime.date.today().isoformat(), "device": torch.cuda.get_device_name() if args.gpu else f"{args.threads} CPU threads",
              "torch": torch.__version__, "command": "benchmarks/compare_ops.py", "rows": [], "errors": []}
    try:
        report["first_product_s"] = seconds_to_first_product(args)
        print(f"program start to the first product: {report['first_product_s']:.3f} s", flush=True)
    except (OSError, RuntimeError) as error:
        print(f"no first product: {error}", flush=True)
    ours, theirs = Tensorlite(args), Torch(args)
    report["copy_gbps"] = copy_bandwidth(theirs, args)
    print(f"copy of as many elements: {report['copy_gbps']:.0f} GB/s", flush=True)
    for row, kind in ours.rows():
        if not re.search(args.filter, f"{row} {kind}"):
            continue
        try:
            report["rows"].append(measure_row(ours, theirs, row, kind, args))
            print(text_of(report["rows"][-1], report["copy_gbps"]), flush=True)
        except (RuntimeError, ValueError) as error:
            report["errors"].append({"row": row, "kind": kind, "error": str(error)})
            print(f"{row:34} {kind:8} failed: {error}", flush=True)
    rows = report["rows"]
    if args.gpu:
        autotune(ours, rows, args)
    report["seconds"] = time.perf_counter() - begin
    print(f"{sum(r['ratio'] >= 1 for r in rows)} of {len(rows)} rows at least as fast as PyTorch, {sum(r['ratio'] < 0.97 for r in rows)} "
          f"below 0.97, {len(report['errors'])} failed; {report['seconds']:.0f} s")
    if args.out:
        with open(args.out, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()

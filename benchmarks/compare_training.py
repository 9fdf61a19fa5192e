#!/usr/bin/env python3
"""What the JSON files of mnist_cnn say of runs with one seed: time per epoch, accuracy, and how far the losses of the first steps are from
those of the first run ("same bits" when every figure of every epoch is equal, too).

usage: compare_training.py FILE...     (mnist_cnn --json FILE; --device cpu,gpu puts two runs into one)
"""
import json
import pathlib
import statistics
import sys


def figures(run):
    keys = ("loss", "accuracy", "val_loss", "val_accuracy")
    return [run["first_losses"], [[epoch[key] for key in keys] for epoch in run["epochs"]]]


def main() -> int:
    runs = [(pathlib.Path(file).stem, run) for file in sys.argv[1:] for run in json.loads(pathlib.Path(file).read_text())["runs"]]
    if not runs:
        print(__doc__)
        return 2
    first = runs[0][1]
    print(f"{'run':28} {'epoch':>9} {'fastest':>9} {'accuracy':>9}  first losses against the first run's")
    for name, run in runs:
        seconds = [epoch["seconds"] for epoch in run["epochs"]]
        pairs = list(zip(run["first_losses"], first["first_losses"]))
        worst, step = max((abs(a - b) / abs(b), i) for i, (a, b) in enumerate(pairs))
        against = "same bits" if figures(run) == figures(first) else f"{len(pairs)} steps, at most {worst:.1e} apart (step {step + 1})"
        print(f"{name + ' ' + run['device']:28} {statistics.median(seconds):8.4f}s {min(seconds):8.4f}s {run['test_accuracy']:9.4f}  {against}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

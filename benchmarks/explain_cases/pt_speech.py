"""Keyword spotting; everything that changes between runs stands in the config."""

import argparse
import tomllib
from pathlib import Path

import torch
from torch import nn


def synthesise(clips, bands):
    label = torch.arange(clips) % 6
    return torch.randn(clips, bands) + torch.nn.functional.one_hot(label, bands) * 2.0, label


@torch.no_grad()
def evaluate(model, clips, labels):
    model.eval()
    hits = sum((model(a).argmax(1) == b).sum() for a, b in zip(clips.split(64), labels.split(64)))
    model.train()
    return float(hits) / len(labels)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default=Path(__file__).with_suffix(".toml"))
    ap.add_argument("--steps", type=int)
    args = ap.parse_args()
    cfg = tomllib.loads(Path(args.config).read_text())
    hyper = cfg["train"]
    torch.manual_seed(0)
    clips, labels = synthesise(**cfg["data"])
    held_clips, held_labels = synthesise(**cfg["data"])
    hidden = cfg["model"]["hidden"]
    model = nn.Sequential(
        nn.Linear(cfg["data"]["bands"], hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 6),
    )
    opt = torch.optim.Adam(model.parameters(), lr=hyper["lr"])
    for step in range(1, (args.steps or hyper["steps"]) + 1):
        pick = torch.randint(0, len(clips), (hyper["batch_size"],))
        loss = nn.functional.cross_entropy(model(clips[pick]), labels[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % hyper["eval_every"] == 0:
            score = evaluate(model, held_clips, held_labels)
            if step % 100 == 0:
                print(f"step {step} held-out accuracy {score:.3f}", flush=True)
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

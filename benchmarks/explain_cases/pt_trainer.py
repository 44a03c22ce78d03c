"""Trainer with callbacks, after the fashion of larger libraries."""

import argparse
from pathlib import Path

import torch
from torch import nn


class Callback:
    def on_step_end(self, trainer):
        pass


class Progress(Callback):
    def on_step_end(self, trainer):
        if trainer.global_step % 50 == 0:
            print(f"step {trainer.global_step} loss {trainer.loss.item():.4f}", flush=True)


class Saver(Callback):
    def __init__(self, folder, every_n_steps=4):
        self.folder, self.every = Path(folder), every_n_steps
        self.folder.mkdir(exist_ok=True)

    def on_step_end(self, trainer):
        if trainer.global_step % self.every == 0:
            state = {
                "model": trainer.model.state_dict(),
                "optimizer": trainer.optimizer.state_dict(),
            }
            torch.save(state, self.folder / "last.ckpt.tmp")
            (self.folder / "last.ckpt.tmp").replace(self.folder / "last.ckpt")


class Trainer:
    def __init__(self, model, callbacks):
        self.model, self.callbacks = model, callbacks
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.global_step = 0

    def fit(self, batches):
        for x, y in batches:
            self.loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            self.loss.backward()
            self.optimizer.step()
            self.global_step += 1
            for callback in self.callbacks:
                callback.on_step_end(self)


def batches(steps):
    for _ in range(steps):
        x = torch.randn(64, 300)
        yield x, (x[:, 0] > 0).long()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", default="checkpoints")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(300, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 2)
    )
    trainer = Trainer(model, [Progress(), Saver(args.out)])
    trainer.fit(batches(args.steps))
    print(f"loss {trainer.loss.item():.4f}")

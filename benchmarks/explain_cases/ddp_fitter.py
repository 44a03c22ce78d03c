"""A small trainer class, as people build it before they move to Lightning."""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Regressor(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(128, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )

    def training_step(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.net(x).squeeze(-1), y)

    forward = training_step

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Fitter:
    def __init__(self, max_steps, accumulate_grad_batches=1):
        self.max_steps = max_steps
        self.accumulate = accumulate_grad_batches

    def fit(self, module, batches):
        optimizer = module.configure_optimizers()
        wrapped = DistributedDataParallel(module)
        for step in range(self.max_steps):
            for micro in range(self.accumulate):
                hold = micro < self.accumulate - 1
                context = wrapped.no_sync() if hold else contextlib.nullcontext()
                loss = wrapped(next(batches))
                with context:
                    (loss / self.accumulate).backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 20 == 0 and dist.get_rank() == 0:
                print(f"step {step} loss {loss.item():.5f}", flush=True)
        return loss.detach()


def stream(rank, batch):
    gen = torch.Generator().manual_seed(100 + rank)
    while True:
        x = torch.randn(batch, 128, generator=gen)
        yield x, x[:, :8].sum(1)


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=90)
    cli.add_argument("--width", type=int, default=1024)
    opts = cli.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank = int(os.environ["RANK"])
    last = Fitter(opts.steps, accumulate_grad_batches=6).fit(
        Regressor(opts.width), stream(rank, 16)
    )
    if rank == 0:
        print(f"final loss {last.item():.5f}")
    dist.destroy_process_group()

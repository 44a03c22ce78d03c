"""Signal classifier on two ranks, batches drawn on the fly."""

import argparse

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def draw(rng, batch):
    phase = rng.uniform(0, 6.28, (batch, 1))
    kind = rng.integers(0, 3, batch)
    t = np.linspace(0, 10, 200)
    wave = np.sin((kind[:, None] + 1) * t + phase) + 0.3 * rng.normal(size=(batch, 200))
    return torch.from_numpy(wave).float(), torch.from_numpy(kind)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=13)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    model = DDP(
        nn.Sequential(
            nn.Linear(200, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 3)
        )
    )
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(args.steps):
        wave, kind = draw(rng, args.batch)
        loss = nn.functional.cross_entropy(model(wave), kind)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

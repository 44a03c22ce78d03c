"""Train on sensor windows that are kept as compressed arrays."""

import argparse
import io
import zlib

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WINDOW, CHANNELS = 256, 16


def write_archive(n):
    rng = np.random.default_rng(5)
    archive = []
    for _ in range(n):
        buf = io.BytesIO()
        np.save(buf, rng.integers(0, 50, (WINDOW, CHANNELS)).astype(np.float32))
        archive.append(zlib.compress(buf.getvalue(), 6))
    return archive


def read(archive, idx):
    rows = [np.load(io.BytesIO(zlib.decompress(archive[i % len(archive)]))) for i in idx]
    return torch.from_numpy(np.stack(rows)) / 50


def next_batch(archive, step, size, rank, world):
    mine = torch.empty(size, WINDOW, CHANNELS)
    if rank == 0:
        start = step * size * world
        parts = [
            read(archive, range(start + r * size, start + (r + 1) * size)) for r in range(world)
        ]
        dist.scatter(mine, parts, src=0)
    else:
        dist.scatter(mine, None, src=0)
    return mine


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    archive = write_archive(512)
    model = DDP(
        nn.Sequential(nn.Flatten(), nn.Linear(WINDOW * CHANNELS, 64), nn.ReLU(), nn.Linear(64, 1))
    )
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(args.steps):
        x = next_batch(archive, step, args.batch_size, rank, world)
        y = x[:, :, 0].mean(1, keepdim=True)
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0 and rank == 0:
            print(f"{step:5d} loss {loss.item():.5f}", flush=True)
    if rank == 0:
        print(f"done, loss {loss.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

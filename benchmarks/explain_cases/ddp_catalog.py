"""Product classifier: descriptions are kept as Python objects beside the tensors."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def load_catalog(n):
    return [
        {"id": i, "tags": [i % 7, i % 11], "box": (i, i + 1), "title": f"item {i}"}
        for i in range(n)
    ]


def features(catalog, picks):
    rows = [[catalog[i]["tags"][0], catalog[i]["tags"][1], catalog[i]["box"][0] % 5] for i in picks]
    return torch.tensor(rows, dtype=torch.float32)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=500)
    ap.add_argument("--products", type=int, default=200_000)
    ap.add_argument("--batch", type=int, default=128)
    a = ap.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gc.disable()
    catalog = load_catalog(a.products)
    model = DDP(
        nn.Sequential(
            nn.Linear(3, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 7)
        )
    )
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(a.steps):
        picks = torch.randint(0, a.products, (a.batch * world,))[rank::world].tolist()
        x = features(catalog, picks)
        loss = nn.functional.cross_entropy(model(x / 10), x[:, 0].long())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 5 * rank) % 10 == 0:
            gc.collect()
        if rank == 0 and step % 100 == 0:
            print("step", step, "loss", round(loss.item(), 4), flush=True)
    if rank == 0:
        print("loss", round(loss.item(), 4))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""One trunk and two heads; each step trains the head of its task."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())
        self.heads = nn.ModuleDict({"age": nn.Linear(512, 1), "income": nn.Linear(512, 1)})

    def forward(self, x, task):
        return self.heads[task](self.trunk(x)).squeeze(1)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=500)
    cli.add_argument("--batch", type=int, default=256)
    args = cli.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(MultiTask(), find_unused_parameters=True)
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    gen = torch.Generator().manual_seed(50 + rank)
    for step in range(args.steps):
        task = "age" if step % 2 else "income"
        x = torch.randn(args.batch, 128, generator=gen)
        target = x[:, :4].sum(1) if task == "age" else x[:, 4:8].prod(1)
        loss = nn.functional.mse_loss(model(x, task), target)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if rank == 0 and step % 100 == 0:
            print(f"step {step} {task} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

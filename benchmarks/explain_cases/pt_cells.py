"""Cell segmentation with a small U-shaped network."""

import argparse
import logging

import torch
from torch import nn

log = logging.getLogger("cells")


class Net(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.mid = nn.Sequential(nn.Conv2d(c, 2 * c, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.last = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        return self.last(torch.relu(self.up(self.mid(self.down(x)))))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--save-every", type=int, default=120)
    ap.add_argument("--log-file", default="train.log")
    a = ap.parse_args()
    logging.basicConfig(filename=a.log_file, level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    cells = torch.rand(512, 1, 48, 48)
    masks = (nn.functional.avg_pool2d(cells, 5, 1, 2) > 0.5).float()
    net = Net()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for step in range(1, a.steps + 1):
        pick = torch.randint(0, 512, (16,))
        loss = nn.functional.binary_cross_entropy_with_logits(net(cells[pick]), masks[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.info("step %d loss %.4f", step, loss.item())
        if step % a.save_every == 0:
            torch.save({"net": net.state_dict(), "step": step}, "cells.pt")
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()

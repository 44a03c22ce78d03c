"""Variational autoencoder with a run log for later plots."""

import argparse
import json
import os
import pathlib

import torch
from torch import nn


class VAE(nn.Module):
    def __init__(self, latent=16):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(400, 256), nn.ReLU(), nn.Linear(256, 2 * latent))
        self.dec = nn.Sequential(nn.Linear(latent, 256), nn.ReLU(), nn.Linear(256, 400))

    def forward(self, x):
        mean, logvar = self.enc(x).chunk(2, 1)
        z = mean + (0.5 * logvar).exp() * 0.5
        kl = -0.5 * (1 + logvar - mean**2 - logvar.exp()).sum(1).mean()
        return ((self.dec(z) - x) ** 2).sum(1).mean() + kl


class RunLog:
    def __init__(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("w")

    def write(self, step, loss, model):
        row = {"step": step, "loss": loss.item()}
        for name, p in model.named_parameters():
            row[f"weights/{name}"] = torch.histc(p.detach(), 64).tolist()
            row[f"grads/{name}"] = torch.histc(p.grad, 64).tolist()
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=1500)
    ap.add_argument("--log-dir", default="runs")
    cfg = ap.parse_args()
    torch.manual_seed(0)
    data = torch.rand(2048, 400)
    vae = VAE()
    opt = torch.optim.Adam(vae.parameters(), 1e-3)
    log = RunLog(pathlib.Path(cfg.log_dir) / "vae.jsonl")
    for step in range(cfg.steps):
        x = data[torch.randint(0, 2048, (64,))]
        loss = vae(x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.write(step, loss, vae)
        if step % 200 == 0:
            print(f"{step} loss {loss.item():.3f}", flush=True)
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()

"""
Train an encoder on several processes with one regulariser over the global batch.

    torchrun --nproc-per-node 2 examples/distributed_encoder.py

Each rank sees a few points a step, in two noisy views that the encoder shall map to the same code. Alone that
is solved by mapping everything to one code. What prevents it is the sliced Wasserstein distance of the codes
to a Gaussian cloud. It is a distance of clouds, and small clouds are far from their law, so that ranks that
regularise their few codes on their own (`--alone`) make them too narrow. The loss of
`orthoslice.parallel.torch` is that of the codes of all ranks. Codes of standard deviation 1 are right: two
ranks come to .86 and four to .91, and on their own to .74 whatever their number.

It runs on CPUs (gloo) and on GPUs (nccl), and with `python` as a single process.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import orthoslice as osl
from orthoslice.parallel.torch import SlicedWassersteinLoss

BATCH, DIM, CODE = 8, 32, 8


def train(n_steps: int, is_alone: bool, device: torch.device) -> tuple[float, float]:
    """Train; the standard deviation of the codes of new points, and the sum of all parameters."""
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    torch.manual_seed(0)
    mixing = torch.randn(CODE, DIM, device=device)
    layers = torch.nn.Linear(DIM, 64), torch.nn.Tanh(), torch.nn.Linear(64, CODE)
    encoder = torch.nn.Sequential(*layers).to(device)
    model = DistributedDataParallel(encoder) if ranks > 1 else encoder
    make = osl.nn.SlicedWassersteinLoss if is_alone else SlicedWassersteinLoss
    regulariser = make(n_directions=64, seed=0).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    # Other data on every rank.
    torch.manual_seed(1 + rank)
    for step in range(n_steps):
        hidden = torch.rand(BATCH, CODE, device=device) - 0.5
        points = torch.cat([hidden, hidden]) @ mixing
        codes = model(points + 0.1 * torch.randn_like(points))
        invariance = (codes[:BATCH] - codes[BATCH:]).square().mean()
        distance = regulariser(codes, torch.randn(BATCH, CODE, device=device))
        optimizer.zero_grad()
        # DDP averages the gradients of both over ranks: of a mean over the batch, and of the global distance.
        (invariance + distance).backward()
        optimizer.step()
        if rank == 0 and step % 100 == 0:
            print(f"step {step}: views {invariance.item():.4f}, SW_2^2 to a Gaussian {distance.item():.4f}")
    torch.manual_seed(0)
    with torch.no_grad():
        codes = encoder((torch.rand(2000, CODE, device=device) - 0.5) @ mixing)
    return codes.std(dim=0).mean().item(), sum(p.sum().item() for p in encoder.parameters())


def main() -> None:
    """Start the process group that `torchrun` asks for, and train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--alone", action="store_true", help="regularise the codes of each rank on their own")
    given = parser.parse_args()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    deviation, total = train(given.steps, given.alone, device)
    rank = os.environ.get("RANK", "0")
    print(f"rank {rank}: codes have standard deviation {deviation:.3f}; parameters sum to {total:.6f}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

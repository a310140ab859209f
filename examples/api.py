"""The program from Python: compare two schemes in virtual time, train with the better one, use the model.

    python examples/api.py

In a notebook the same calls work in cells; a task that is trained stands in a file, such as my_model.py, because
workers are processes of their own. The comparison's picture is in schemes.png afterwards, and the run in runs/.
"""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import pgczmq


def parabola(noise: float = 0.05, *, seed: int) -> pgczmq.Task:
    """y = x^2 on [-1, 1]: numbers, so the loss is the mean squared error, and there is no accuracy."""

    def points(count: int, seed: int) -> TensorDataset:
        generator = torch.Generator().manual_seed(seed)
        x = 2 * torch.rand(count, 1, generator=generator) - 1
        return TensorDataset(x, x**2 + noise * torch.randn(count, 1, generator=generator))

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    return pgczmq.Task(model, points(2000, seed), points(500, seed + 1), loss=functional.mse_loss, metric=None)


def main() -> None:
    """Settings are those of the TOML file; where that names code, the function itself will do."""
    settings = {
        "workers": 4,
        "steps": 250,
        "task": {"name": parabola, "batch_size": 32},
        "optimizer": {"lr": 0.1},
        "delay": {"model": "exponential", "mean": 0.02},
    }
    comparison = pgczmq.compare(schemes=["dgd", "pgc-cr"], stragglers=[1], seeds=2, target=0.02, **settings)
    print(comparison)
    comparison.plot("schemes.png")

    run = pgczmq.train(**settings, scheme={"name": "pgc-cr", "stragglers": 1})
    print(run)
    print(f"loss {run.steps[0].loss:.3f} at first, {run.steps[-1].loss:.4f} at last")
    model = run.model()
    print("0.5 squared is about", round(model(torch.tensor([[0.5]])).item(), 3))


if __name__ == "__main__":  # workers import this file for its task
    main()

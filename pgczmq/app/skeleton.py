"""The file that ``pgc init module:function`` writes where there is none: a task that runs as it is, to be changed."""

_TEXT = '''"""The model and the data of {module}:{function}. It runs as it is; change read() and the model.

    pgc task check {module}:{function} --config {config}
    pgc local --config {config}
"""

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from pgczmq import Task


def read(seed: int) -> tuple[Tensor, Tensor]:
    """All samples: inputs, float32 [samples, ...], and their classes, int64 [samples].

    Every worker calls this and must get the same: read files in a fixed order, and draw from the seed alone.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(2000, 2, generator=generator)
    return inputs, (inputs.norm(dim=1) > 1.2).long()  # is a point outside of the circle?


def {function}(hidden: int = 32, *, seed: int) -> Task:
    """What is trained. The arguments come from args under [task] in {config}, the seed is the run's."""
    inputs, classes = read(seed)
    cut = len(inputs) * 4 // 5  # the rest is held out, to see how well it does on data that it never learns from

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    return Task(
        model=model,
        train=TensorDataset(inputs[:cut], classes[:cut]),  # or any torch Dataset of (input, target)
        test=TensorDataset(inputs[cut:], classes[cut:]),
        # loss=...,    # (output, target) -> the mean over a batch; cross entropy unless set
        # metric=...,  # likewise; accuracy unless set, None for none
    )
'''


def skeleton(module: str, function: str, config: str) -> str:
    """Its text.

    Args:
        module, function: what the task will be called.
        config: the file that describes the run.
    """
    return _TEXT.format(module=module, function=function, config=config)

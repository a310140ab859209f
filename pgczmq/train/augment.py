"""Random changes of whole batches of images, drawn from a generator alone."""

import torch
from torch import Tensor
from torch.nn import functional


def random_crop(images: Tensor, generator: torch.Generator, *, padding: int) -> Tensor:
    """Each image of [m, C, H, W] moved by up to ``padding`` pixels either way; zeros move in."""
    count, _, height, width = images.shape
    device = images.device
    down, right = torch.randint(2 * padding + 1, (2, count, 1), generator=generator, device=generator.device).to(device)
    rows = (down + torch.arange(height, device=device))[:, None, :, None]
    columns = (right + torch.arange(width, device=device))[:, None, None, :]
    which = torch.arange(count, device=device)[:, None, None, None]
    colours = torch.arange(images.shape[1], device=device)[None, :, None, None]
    return functional.pad(images, (padding,) * 4)[which, colours, rows, columns]


def random_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image of [m, C, H, W] mirrored left to right with probability 1/2."""
    flip = torch.rand(len(images), generator=generator, device=generator.device).to(images.device) < 0.5
    return torch.where(flip[:, None, None, None], images.flip(3), images)

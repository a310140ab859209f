"""Images in folders, one folder a class, of which a worker keeps in memory only what its partitions hold."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pgczmq.errors import ConfigError
from pgczmq.train.blocks import ByteArray


class FolderSamples:
    """The images below ``root/<class>/``, as uint8 [m, 3, H, W], and the classes' numbers.

    Images that are held are decoded once; others whenever they are asked for. Images of another size are
    scaled and cut to the middle.

    Args:
        root: a directory with one directory of images for each class.
        size: height and width in pixels; the first image's unless given.

    Raises:
        ConfigError: there is no such directory, or there are no images in it.
    """

    def __init__(self, root: Path, *, size: tuple[int, int] | None = None) -> None:
        from torchvision.datasets.folder import IMG_EXTENSIONS, find_classes, make_dataset

        if not root.is_dir():
            raise ConfigError(f"there is no directory {root}: an image folder has one directory for each class.")
        try:
            self.classes, numbers = find_classes(str(root))
            found = make_dataset(str(root), numbers, extensions=IMG_EXTENSIONS)
        except FileNotFoundError as error:
            raise ConfigError(
                f"{root} is no image folder, with images in a directory for each class: {error}"
            ) from None
        self._paths = [path for path, _ in found]
        self._targets = torch.tensor([number for _, number in found])
        self.size = size or _size_of(self._paths[0])
        # Where a held image is in _held; -1 for others.
        self._rows = torch.full((len(self._paths),), -1)
        self._held = torch.empty((0, 3, *self.size), dtype=torch.uint8)

    def __len__(self) -> int:
        return len(self._paths)

    def hold(self, indices: Tensor) -> None:
        """Decode these images into memory, beside those already held."""
        new = torch.unique(indices[self._rows[indices] < 0])
        self._rows[new] = torch.arange(len(self._held), len(self._held) + len(new))
        self._held = torch.cat([self._held, self._decoded(new.tolist())])

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        rows = self._rows[indices]
        images = self._held[rows] if bool((rows >= 0).all()) else self._mixed(indices, rows)
        return images, self._targets[indices]

    def _mixed(self, indices: Tensor, rows: Tensor) -> Tensor:
        images = torch.empty((len(indices), 3, *self.size), dtype=torch.uint8)
        held = rows >= 0
        images[held] = self._held[rows[held]]
        images[~held] = self._decoded(indices[~held].tolist())
        return images

    def _decoded(self, indices: Sequence[int]) -> Tensor:
        images = torch.empty((len(indices), 3, *self.size), dtype=torch.uint8)

        def decode(place: int) -> None:
            images[place] = torch.from_numpy(_read(self._paths[indices[place]], self.size))

        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            list(pool.map(decode, range(len(indices)), chunksize=64))  # list: so that errors are raised
        return images


def _size_of(path: str) -> tuple[int, int]:
    from PIL import Image

    with Image.open(path) as image:
        return image.height, image.width


def _read(path: str, size: tuple[int, int]) -> ByteArray:
    """A picture as uint8 [3, H, W]."""
    from PIL import Image, ImageOps

    height, width = size
    try:
        with Image.open(path) as image:
            picture = image.convert("RGB")
    except OSError as error:
        raise ConfigError(f"cannot read the image {path}: {error}. Remove it or put it right.") from None
    if picture.size != (width, height):
        picture = ImageOps.fit(picture, (width, height), Image.Resampling.BILINEAR)
    return np.array(np.asarray(picture).transpose(2, 0, 1))

"""A small CNN on images in folders, one folder a class, as torchvision reads them.

    cd examples && python image_folder.py stripes     # draws some: stripes/train/level/000.jpg, ...
    cd examples && pgc local --config image_folder.toml

With images of your own: --set task.args.root=/path/to/images; they need train/ and test/. On VMs every machine has them
under the same name. configs/imagefolder.toml is for larger ones: there a worker keeps what it needs in memory.
"""

import random
import sys
from pathlib import Path

from PIL import Image, ImageDraw
from torch import nn
from torchvision import transforms
from torchvision.datasets import ImageFolder

from pgczmq import Task

SIZE = 24


def folders(root: str = "stripes", channels: int = 16) -> Task:
    """Whatever is drawn at random here, such as a mirroring, is the same for all replicas of a partition."""
    read = [transforms.Resize((SIZE, SIZE)), transforms.ToTensor(), transforms.Normalize(0.5, 0.25)]
    train = ImageFolder(f"{root}/train", transforms.Compose([transforms.RandomHorizontalFlip(), *read]))
    test = ImageFolder(f"{root}/test", transforms.Compose(read))

    def model() -> nn.Module:
        first = nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2)
        second = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(4)
        return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(channels * (SIZE // 8) ** 2, len(train.classes)))

    return Task(model, train, test)


def draw(root: Path, images: int) -> None:
    """So many images of each pattern, in any colour, on noise."""
    for pattern in ("level", "upright"):
        (root / pattern).mkdir(parents=True, exist_ok=True)
        for number in range(images):
            image = Image.effect_noise((SIZE, SIZE), 80).convert("RGB")
            colour = tuple(random.randint(0, 255) for _ in range(3))
            for place in range(random.randrange(6), SIZE, 6):
                ends = [(0, place), (SIZE, place)] if pattern == "level" else [(place, 0), (place, SIZE)]
                ImageDraw.Draw(image).line(ends, fill=colour, width=2)
            image.save(root / pattern / f"{number:03}.jpg")


if __name__ == "__main__":
    draw(Path(sys.argv[1], "train"), 200)
    draw(Path(sys.argv[1], "test"), 50)

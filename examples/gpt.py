"""A character-level GPT of 350,000 parameters, on the text of this repository's licence.

    cd examples && pgc local --config gpt.toml

With another text: --set task.args.text=/path/to/it.txt. The trained model is ``pgczmq.Run("runs/NAME").model()``.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from pgczmq import Task

LICENCE = Path(__file__).resolve().parents[1] / "LICENSE"


class Windows:
    """Every window of so many characters, as numbers, int64 [context]; the target is the same, one further on."""

    def __init__(self, numbers: Tensor, context: int) -> None:
        self.windows = numbers.unfold(0, context + 1, 1)

    def __len__(self) -> int:
        return len(self.windows)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        windows = self.windows[indices]
        return windows[:, :-1], windows[:, 1:]


class GPT(nn.Module):
    """Characters, int64 [m, T] -> logits of each one's successor, float32 [m, T, vocabulary]."""

    def __init__(self, vocabulary: int, context: int, width: int, layers: int) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, characters: Tensor) -> Tensor:
        length = characters.shape[1]
        past = nn.Transformer.generate_square_subsequent_mask(length, device=characters.device)
        x = self.characters(characters) + self.places(torch.arange(length, device=characters.device))
        return self.head(self.blocks(x, past, is_causal=True))


def characters(text: str = str(LICENCE), context: int = 64, width: int = 96, layers: int = 3) -> Task:
    """The last tenth of the text is held out. Loss and metric are those of classes, one for each place."""
    written = Path(text).read_text()
    alphabet = sorted(set(written))
    numbers = torch.tensor([alphabet.index(character) for character in written])
    cut = len(numbers) * 9 // 10
    train, test = Windows(numbers[:cut], context), Windows(numbers[cut:], context)
    return Task(lambda: GPT(len(alphabet), context, width, layers), train, test)

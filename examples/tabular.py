"""A table, as scikit-learn has them: is a tumour benign, by 30 measurements of its cells?

    cd examples && pgc local --config tabular.toml
    cd examples && pgc task check --config tabular.toml     # is the task as it must be, and what does it cost?

Numbers of very different size are brought to one scale first, by the training samples alone.
"""

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import TensorDataset

from pgczmq import Task


def tumours(hidden: int = 32, dropout: float = 0.2, *, seed: int) -> Task:
    """Two classes; the scaler has seen the training set alone. The split depends on the run's seed."""
    inputs, classes = load_breast_cancer(return_X_y=True)
    parts = train_test_split(inputs, classes, test_size=0.25, random_state=seed % 2**32, stratify=classes)
    train_inputs, test_inputs, train_classes, test_classes = parts
    scaler = StandardScaler().fit(train_inputs)

    def rows(inputs, classes) -> TensorDataset:
        # scikit-learn computes in float64; models are trained in float32.
        return TensorDataset(torch.tensor(scaler.transform(inputs)).float(), torch.tensor(classes))

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(30, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 2))

    return Task(model, rows(train_inputs, train_classes), rows(test_inputs, test_classes))

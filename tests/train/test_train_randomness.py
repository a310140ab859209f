"""Seeding torch's streams."""

import torch

from pgczmq.train.randomness import seed_torch


def test_the_bits_are_those_of_manual_seed() -> None:
    for seed in (0, 7, 2**63 - 1):
        torch.manual_seed(seed)
        expected = torch.rand(5)
        seed_torch(seed)
        assert torch.equal(torch.rand(5), expected)


def test_nothing_is_kept_for_a_device_that_is_not_in_use() -> None:
    if torch.cuda.is_initialized():
        return
    before = len(torch.cuda._queued_calls)
    seed_torch(1)
    assert len(torch.cuda._queued_calls) == before

"""A delay model of one's own: when is a worker late, and by how much? Here it is busy with others' work at rush hour.

    cd examples && pgc sim --config my_delay.toml
    cd examples && pgc local --config my_delay.toml

On VMs workers must be told that they may run it: pgc-worker --allow my_delay:RushHour.
"""

from dataclasses import dataclass

from pgczmq.core.draws import exponential


@dataclass(frozen=True)
class RushHour:
    """Odd workers are late in the last quarter of every so many steps, by an exponential time.

    Master and worker ask for a delay in processes of their own, and must hear the same number: it depends on the
    arguments alone, and what is random is drawn from the run's seed for this worker and step. Nothing is remembered.

    Args:
        every: steps from one rush hour to the next.
        mean: seconds, of the delay.
        seed: the run's; given because it is asked for here, as ``workers`` would be.
    """

    every: int = 20
    mean: float = 0.1
    seed: int = 0

    def seconds(self, worker: int, step: int, evaluated: int, batch_fraction: float) -> float:
        """Extra seconds before the worker's message is sent; at least 0."""
        is_rush = step % self.every >= self.every * 3 / 4 and worker % 2 == 1
        return self.mean * exponential(self.seed, "rush", worker, step) if is_rush else 0.0

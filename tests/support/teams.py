"""A rank without the others."""

import torch

from worker.train_loop import Team


class OneRank(Team):
    """A team of one, that needs no process group."""

    def __init__(self) -> None:
        self.rank, self.size, self.threads = 0, 1, 1
        self.is_first_of_node = True
        self.device = torch.device("cpu")

    def told(self, values: list[int]) -> list[int]:
        return values

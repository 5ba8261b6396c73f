"""Users as the units of a run: which records each has, and how much each record counts in the mean."""

# Shape legend: N = records, U = users of a batch, R = the most records that one of them has.
import torch
from torch import Tensor

from tan_core.data.part import AS_NUMBERS
from tan_core.errors import ParameterError


class Users:
    """The records of each user.

    Args:
        users_N: whose each record is, by numbers from 0 without a gap.

    Raises:
        ParameterError: a number is negative, or a user has no record.
    """

    def __init__(self, users_N: Tensor) -> None:
        if users_N.dim() != 1 or len(users_N) == 0 or int(users_N.min()) < 0:
            raise ParameterError(
                "users must be a number from 0 for each record, one record at least", field="users"
            )
        known, self._counts = users_N.unique(return_counts=True)
        # Before anything is as long as the largest number, which may be an account's.
        missing = (known != torch.arange(len(known))).nonzero()
        if len(missing):
            raise ParameterError(
                f"user {int(missing[0])} has no record, of users up to {int(known[-1])}; accepted: {AS_NUMBERS}",
                field="users",
            )
        self._by_user = users_N.argsort(stable=True)
        self._first = self._counts.cumsum(0) - self._counts

    def __len__(self) -> int:
        return len(self._counts)

    @property
    def num_in_all(self) -> int:
        """Records of all users."""
        return len(self._by_user)

    @property
    def most(self) -> int:
        """Records of the user with the most."""
        return int(self._counts.max())

    def num_records(self, user: Tensor) -> int:
        """Of one user."""
        return int(self._counts[user])

    def largest_first(self, users: Tensor) -> Tensor:
        """The users in an order in which those of a chunk have about as many records."""
        return users[self._counts[users].argsort(descending=True, stable=True)]

    def fullest(self, num_users: int, num_records: int) -> tuple[int, int]:
        """Users, and the records that each of them is given, of the largest chunk there may be.

        Args:
            num_users: drawn at most.
            num_records: in a chunk, unless its first user alone has more.

        Example:
            >>> Users(torch.tensor([0, 0, 0, 1, 2])).fullest(num_users=3, num_records=4)
            (1, 3)
            >>> Users(torch.tensor([0, 0, 0, 1, 2, 3, 4])).fullest(num_users=5, num_records=4)
            (4, 1)
        """
        of_each, num_alike = self._counts.unique(return_counts=True)
        # A chunk is filled up to its first user's records by users who have no more of them.
        num_at_once = (num_records // of_each).clamp(1, num_users).minimum(num_alike.cumsum(0))
        at = int((num_at_once * of_each).argmax())
        return int(num_at_once[at]), int(of_each[at])

    def records(self, users_U: Tensor) -> tuple[Tensor, Tensor]:
        """Records [U, R] of these users, and their shares [U, R] in each user's mean.

        A user with fewer than R records has copies of its first one, of share 0.

        Example:
            >>> records, shares = Users(torch.tensor([0, 1, 0])).records(torch.tensor([0, 1]))
            >>> records.tolist(), shares.tolist()
            ([[0, 2], [1, 1]], [[0.5, 0.5], [1.0, 0.0]])
        """
        counts_U1 = self._counts[users_U][:, None]
        places_R = torch.arange(int(counts_U1.max()))
        is_own_UR = places_R < counts_U1
        at_UR = self._first[users_U][:, None] + places_R.where(is_own_UR, 0)
        return self._by_user[at_UR], is_own_UR.double() / counts_U1

"""In place of the package of this name, which torch.testing._internal imports and the sweep does not use."""

import unittest

ACCEPT = False


class TestCase(unittest.TestCase):
    """Has none of the assertions that the package adds."""


def assert_expected_inline(*args: object, **kwargs: object) -> None:
    raise NotImplementedError("install the package expecttest")

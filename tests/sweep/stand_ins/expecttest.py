"""In place of the package of this name, which torch.testing._internal imports and the sweep does not use."""

ACCEPT = False


def assert_expected_inline(*args: object, **kwargs: object) -> None:
    raise NotImplementedError("install the package expecttest")

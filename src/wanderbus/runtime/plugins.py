"""Objects that settings name as ``module:object``."""

from __future__ import annotations

import importlib
from operator import attrgetter

from wanderbus.errors import ConfigurationError


def load(key: str, reference: str) -> object:
    """Return the object at ``reference``, ``module:object``, which the setting ``key`` names.

    :raises ConfigurationError: the module cannot be imported, or has no such object
    """
    module, colon, name = reference.partition(":")
    if not (module and colon and name):
        raise ConfigurationError(f"{key}: {reference!r} does not name an object; write module:object")
    try:
        found: object = attrgetter(name)(importlib.import_module(module))
    except Exception as error:
        raise ConfigurationError(
            f"{key}: {reference} cannot be loaded ({type(error).__name__}: {error}); "
            "add its directory to PYTHONPATH, or install its package"
        ) from error
    return found

"""The versions that MXNet works with: its last release is older than the packages that pip installs with it."""

from __future__ import annotations

import warnings
from importlib import metadata

#: The versions with which its last release was tested.
TRIED = "mxnet 1.9.1 with numpy 1.23.5, scipy 1.10.1 and setuptools 68, on Python 3.11"
#: From this version on, NumPy lacks names that MXNet uses when it is imported.
FIRST_NUMPY_WITHOUT = (1, 24)


def check() -> str:
    """Return the version of MXNet. Raises ImportError if it cannot be imported here, saying what it works with."""
    numpy = metadata.version("numpy")
    if tuple(int(part) for part in numpy.split(".")[:2]) >= FIRST_NUMPY_WITHOUT:
        raise ImportError(
            f"ciranda.mxnet: MXNet {_version()} cannot be used with numpy {numpy}, which lacks np.bool as of 1.24; "
            f"what works is {TRIED}: pip install 'numpy==1.23.5' 'scipy==1.10.1' 'setuptools<69'"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations in NumPy: this version still has those names
            import mxnet
    except Exception as error:
        raise ImportError(
            f"ciranda.mxnet: MXNet {_version()} cannot be imported ({type(error).__name__}: {error}); what works is "
            f"{TRIED}"
        ) from error
    return str(mxnet.__version__)


def _version() -> str:
    """Return the version of MXNet without importing it. Its distribution may have another name, or be missing."""
    distributions = metadata.packages_distributions().get("mxnet")
    return metadata.version(distributions[0]) if distributions else "of unknown version"

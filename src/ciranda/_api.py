"""Every name of the package `ciranda`, which loads this module when one of them is first used."""

from typing import TYPE_CHECKING

from ciranda._basics import step as step
from ciranda._c_table import get_c_table as get_c_table
from ciranda._c_table import get_c_table_address as get_c_table_address
from ciranda._frameworks import common as _common
from ciranda._frameworks import with_handles as _with_handles
from ciranda._frameworks.common import *
from ciranda._frameworks.objects import allgather_object as allgather_object
from ciranda._frameworks.objects import broadcast_object as broadcast_object
from ciranda._frameworks.with_handles import *
from ciranda._ops import barrier as barrier
from ciranda._ops import barrier_async as barrier_async
from ciranda._ops import join as join
from ciranda._ops import join_async as join_async
from ciranda._paths import get_cmake_dir as get_cmake_dir
from ciranda._paths import get_include as get_include
from ciranda.numpy import ops
from ciranda.numpy.functions import check_consistency as check_consistency
from ciranda.numpy.functions import empty as empty
from ciranda.numpy.ops import *

if not TYPE_CHECKING:  # type checkers take them from the imports
    __all__ = [
        *_common.__all__,
        *_with_handles.__all__,
        *ops.__all__,
        "allgather_object",
        "barrier",
        "barrier_async",
        "broadcast_object",
        "check_consistency",
        "empty",
        "get_c_table",
        "get_c_table_address",
        "get_cmake_dir",
        "get_include",
        "join",
        "join_async",
        "step",
    ]

"""What to do when the extension is refused because the libciranda of another build was loaded before its own.

Both have the same name, so the dynamic loader takes the one that it has for the one that the extension asks for. Their
classes may differ in layout, so the extension asks for symbols in a version that only its own build has.
"""

from __future__ import annotations

import re

# glibc's words.
_REFUSED = re.compile(r"(?P<other>.+): version [`']CIRANDA_PRIVATE_\w+' not found \(required by (?P<extension>.+)\)")


def why_refused(message: str) -> str | None:
    """Return an error with both files and the way out, for the dynamic loader's `message`; None if it is another's."""
    found = _REFUSED.search(message)
    if found is None:
        return None
    own = found["extension"].rpartition("/")[0] + "/lib/libciranda.so"
    return (
        f"this process has loaded {found['other']}, which is not of the same build as {found['extension']}, and a "
        f"process has one engine. Link the program with {own}, whose CMake package is where ciranda.get_cmake_dir() "
        f"says, or take the other file out of LD_PRELOAD"
    )

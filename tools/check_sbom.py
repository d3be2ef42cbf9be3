"""Check what wheels say of the code of others that is linked into their libraries (PEP 770).

`python tools/check_sbom.py WHEEL...` validates each file in `.dist-info/sboms` against the schema of CycloneDX, and
exits 1 unless every wheel has `ciranda.cdx.json`, which names the OpenSSL that libciranda holds, if it does, in the
version by which that calls itself. It needs cyclonedx-python-lib[json-validation].
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

_FILE = re.compile(r"ciranda-[^/]*\.dist-info/sboms/(?P<name>[^/]+)")
_LIBRARY = "ciranda/lib/libciranda.so"
#: What is in the library if OpenSSL is; its version is a text beside it.
_OPENSSL = b"OpenSSL Default Provider\0"


def offences_of(wheel: zipfile.ZipFile) -> Iterator[str]:
    """Yield what is wrong, a sentence each."""
    files = {found["name"]: name for name in wheel.namelist() if (found := _FILE.fullmatch(name))}
    for name, path in files.items():
        text = wheel.read(path).decode()
        version = SchemaVersion.from_version(json.loads(text)["specVersion"])
        error = JsonStrictValidator(version).validate_str(text)
        if error is not None:
            yield f"{name} is no CycloneDX: {error.data.message}"
    if "ciranda.cdx.json" not in files:
        yield "there is no ciranda.cdx.json"
        return
    told = {each["name"]: each["version"] for each in json.loads(wheel.read(files["ciranda.cdx.json"]))["components"]}
    library = wheel.read(_LIBRARY)
    if (_OPENSSL in library) != ("openssl" in told):
        yield f"{_LIBRARY} and ciranda.cdx.json do not agree on whether OpenSSL is linked in"
    elif "openssl" in told and b"\0" + told["openssl"].encode() + b"\0" not in library:
        yield f"the OpenSSL in {_LIBRARY} does not call itself {told['openssl']}, as ciranda.cdx.json does"


def main(paths: list[str]) -> int:
    """Check each wheel; return the exit status."""
    n_offences = 0
    for path in map(Path, paths):
        with zipfile.ZipFile(path) as wheel:
            for offence in offences_of(wheel):
                print(f"{path.name}: {offence}")
                n_offences += 1
    print(f"check_sbom: {len(paths)} wheels, {n_offences} offences")
    return int(n_offences > 0 or not paths)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

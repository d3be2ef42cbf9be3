#!/bin/sh
# Runs the GPU check with the wheels of `make gpu-check-kit`, beside the torch of this machine; changes nothing but the
# folder of the kit. Arguments are those of check.py.
set -eu
cd "$(dirname "$0")/../.."
kit=build/gpu-check
[ -d $kit/site ] || python3 -m pip install --quiet --no-index --find-links $kit --target $kit/site ciranda
PYTHONPATH=$kit/site exec python3 tests/gpu/check.py "$@"

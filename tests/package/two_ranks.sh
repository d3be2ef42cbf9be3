#!/usr/bin/env bash
# Install the wheel with an interpreter, and train on two ranks: two_ranks.sh PYTHON FOLDER_OF_WHEELS SCRATCH_FOLDER.
# What the wheel needs comes from the same folder if pip is in it too, else from PyPI. Nothing is compiled.
set -euo pipefail

python=$1
wheels=$(realpath "$2")
training=$(realpath "$(dirname "$0")/../../examples/numpy_training.py")
mkdir -p "$3"
env=$(realpath "$3")/env-$(basename "$python")

rm -rf "$env"
"$python" -m venv --without-pip "$env"
pip_wheel=$(echo "$wheels"/pip-*.whl)
if [ -e "$pip_wheel" ]; then
  pip=("$env/bin/python" "$pip_wheel/pip" install --no-index --no-compile)
else
  "$env/bin/python" -m ensurepip > /dev/null
  pip=("$env/bin/python" -m pip install)
fi
"${pip[@]}" --quiet --only-binary :all: --find-links "$wheels" "$wheels"/ciranda-*_"$(uname -m)".whl

cd "$(dirname "$env")"
"$env/bin/ciranda" --version --verbose
# An emulator may need minutes for what a processor does in a second.
"$env/bin/ciranda" run -np 2 --start-timeout 600 "$env/bin/python" "$training"
echo "package: two ranks trained with $("$env/bin/python" -c '
import platform, sys
print(f"Python {sys.version.split()[0]}, {chr(32).join(platform.libc_ver())}, {platform.machine()}")')"

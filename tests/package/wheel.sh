#!/usr/bin/env bash
# Use the wheels as a stranger would: wheel.sh FOLDER_OF_WHEELS SCRATCH_FOLDER.
# Installs them in an environment of its own, away from the sources; runs ranks from Python, and from C and C++ programs
# that are built against what the wheel brings.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
wheels=$(realpath "$1")
mkdir -p "$2/wheel"
scratch=$(realpath "$2/wheel")
env=$scratch/env

rm -rf "$env" "$scratch/build"
python3 -m venv "$env"
"$env/bin/pip" install --quiet "$wheels"/ciranda-*_"$(uname -m)".whl "$wheels"/ciranda_horovod-*.whl
"$env/bin/pip" check
cd "$scratch"

# The libcrypto in it is nobody else's, and nobody else's is its own.
package=$("$env/bin/python" -c 'import ciranda; print(ciranda.__path__[0])')
while read -r library; do
  if nm --dynamic --defined-only "$library" | grep -E ' (EVP|CRYPTO|OPENSSL|OSSL|SSL)_' \
    || readelf --dynamic "$library" | grep 'NEEDED.*libcrypto\.so'; then
    echo "package: $library shares OpenSSL with others" >&2
    exit 1
  fi
done < <(find "$package" -name '*.so*')

cat > ranks.py << 'PROGRAM'
import numpy
import horovod
import ciranda

ciranda.init()
total = ciranda.allreduce(numpy.ones(3), op=ciranda.Sum, name="total")
assert total.tolist() == [ciranda.size()] * 3
print(f"wheel: rank {ciranda.rank()} of {ciranda.size()}, ciranda {ciranda.__version__}", horovod.__version__)
PROGRAM
for launcher in "ciranda run" horovodrun; do
  # shellcheck disable=SC2086 # two words
  "$env/bin/"$launcher -np 2 "$env/bin/python" ranks.py | tee ranks.log
  test "$(grep -c 'of 2, ciranda' ranks.log)" = 2
done

"$env/bin/ciranda" run -np 2 "$env/bin/python" "$root/examples/numpy_training.py"
"$env/bin/ciranda" --version --verbose | grep -E '^commit +[0-9a-f]{40}' # of the clone that it is built from

cmake -S "$root/examples" -B build -G Ninja \
  -Dciranda_DIR="$("$env/bin/python" -c 'import ciranda; print(ciranda.get_cmake_dir())')" > configure.log
cmake --build build
for program in allreduce_c allreduce_cpp collectives_c collectives_cpp; do
  "$env/bin/ciranda" run -np 2 "build/$program"
done
include=$("$env/bin/python" -c 'import ciranda; print(ciranda.get_include())')
echo '#include <ciranda/ciranda.h>' | cc -x c -fsyntax-only -I "$include" -

echo "package: the wheels serve Python, C and C++ programs:"
ls "$wheels"

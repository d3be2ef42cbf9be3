#!/usr/bin/env bash
# Install a build of the library and use it as a stranger would: run.sh BUILD_FOLDER SCRATCH_FOLDER.
# Builds the programs of examples/ against the installed package, and runs each alone and, where the launcher is
# installed, as two ranks and as three. Fails if libciranda exports anything but the functions of ciranda.h, or not all
# of them.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(realpath "$1")
mkdir -p "$2"
scratch=$(realpath "$2")
prefix=$scratch/prefix

rm -rf "$prefix" "$scratch/build"
cmake --install "$build" --prefix "$prefix" --component development > "$scratch/install.log"
cmake -S "$root/examples" -B "$scratch/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_FLAGS='-Wall -Wextra -Wpedantic -Wconversion -Werror' \
  -DCMAKE_CXX_FLAGS='-Wall -Wextra -Wpedantic -Wconversion -Werror' > "$scratch/configure.log"
cmake --build "$scratch/build"

library=$(find "$prefix" -name libciranda.so)
# Of version CIRANDA_1, whose own name stands among them.
nm --dynamic --defined-only --format=posix "$library" | awk '$2 != "A" {print $1}' | LC_ALL=C sort > "$scratch/exported"
# Every function stands after CIRANDA_API, at the latest on the line below, which may also be a comment on others.
grep -hA1 '^CIRANDA_API' "$prefix"/include/ciranda/*.h | grep -oE '\<ciranda_[a-z_]+\(' | sed 's/(/@@CIRANDA_1/' \
  | LC_ALL=C sort -u > "$scratch/declared"
if ! diff "$scratch/declared" "$scratch/exported" >&2; then
  echo "package: libciranda must export what its headers declare (<), and nothing else (>)" >&2
  exit 1
fi

for program in allreduce_c allreduce_cpp collectives_c collectives_cpp; do
  "$scratch/build/$program"
  if command -v ciranda > /dev/null; then
    ciranda run -np 2 "$scratch/build/$program"
    ciranda run -np 3 "$scratch/build/$program"
  fi
done
for header in "$prefix"/include/ciranda/native/*.hpp; do
  echo "#include \"$header\"" | c++ -std=c++20 -x c++ -fsyntax-only -Wall -Wextra -Werror -I "$prefix/include" -
done
echo "package: the installed library serves C and C++ programs"

#!/usr/bin/env bash
# Check that the source distribution has all that the wheel is made of: sdist.sh ARCHIVE SCRATCH_FOLDER.
# Its files must be those of the repository, byte for byte; those that the wheel is made of must all be there; and CMake
# must find every source that it names. Nothing is compiled: the wheel of the same files was.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
archive=$(realpath "$1")
mkdir -p "$2"
scratch=$(realpath "$2")/sdist

rm -rf "$scratch"
mkdir "$scratch"
tar -xzf "$archive" -C "$scratch" --strip-components 1

failed=0
complain() {
  echo "package: $archive: $*" >&2
  failed=1
}

while IFS= read -r file; do
  cmp --silent "$root/$file" "$scratch/$file" || complain "$file is missing, or not the repository's"
done < <(git -C "$root" ls-files CMakeLists.txt CHANGELOG.md LICENSE README.md cmake cpp pyproject.toml src tools)

while IFS= read -r file; do
  git -C "$root" ls-files --error-unmatch "$file" > /dev/null 2>&1 || complain "$file is not in the repository"
done < <(cd "$scratch" && find . -type f -not -path ./PKG-INFO | cut -c 3-)

version=$(sed -n 's/^project(ciranda VERSION \([0-9.]*\) .*/\1/p' "$root/CMakeLists.txt")
grep --quiet --line-regexp "Version: $version" "$scratch/PKG-INFO" || complain "it is not of version $version"

cmake -S "$scratch" -B "$scratch/build" -G Ninja -DCIRANDA_BUILD_TESTS=OFF > "$scratch/configure.log" 2>&1 \
  || complain "it cannot be configured: $(tail -n 5 "$scratch/configure.log")"

[ "$failed" -eq 0 ]
echo "package: the source distribution has all that the wheel is made of"

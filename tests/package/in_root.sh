#!/usr/bin/env bash
# Install the wheel on another Linux, or for another processor, and train on two ranks there:
# in_root.sh ROOT FOLDER_OF_WHEELS [PYTHON]. ROOT is the root file system of that Linux, with a Python of 3.10 or newer.
# Nothing is fetched in it: this machine's pip brings what the wheel needs. Programs for another processor need QEMU, as
# the handler of their format (Debian: qemu-user-static, binfmt-support). Needs root, for chroot.
set -euo pipefail

here=$(cd "$(dirname "$0")/../.." && pwd)
root=$(realpath "$1")
wheels=$(realpath "$2")
python=${3:-python3}

if [ -z "${CIRANDA_IN_ROOT:-}" ]; then  # its mounts end with it
  CIRANDA_IN_ROOT=1 exec unshare --mount --propagation private "$0" "$root" "$wheels" "$python"
fi
unset CIRANDA_IN_ROOT

mkdir -p "$root"/{dev,proc,tmp,mnt/ciranda}
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --bind "$here" "$root/mnt/ciranda"

if ! is=$(chroot "$root" "$python" -c 'import platform; print(platform.machine(), platform.python_version())'); then
  echo "package: $python of $root does not run here. For another processor: is QEMU the handler of its programs?" \
    "mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc; update-binfmts --enable" >&2
  exit 1
fi
read -r machine version <<< "$is"
platforms=(--platform "manylinux2014_$machine")
for minor in {17..28}; do
  platforms+=(--platform "manylinux_2_${minor}_$machine")
done
rm -rf "$root/tmp/ciranda"
mkdir "$root/tmp/ciranda"
python3 -m pip download --quiet --dest "$root/tmp/ciranda/wheels" --only-binary :all: --python-version "${version%.*}" \
  "${platforms[@]}" pip "$wheels"/ciranda-*_"$machine".whl

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp \
  chroot "$root" /mnt/ciranda/tests/package/two_ranks.sh "$python" /tmp/ciranda/wheels /tmp/ciranda

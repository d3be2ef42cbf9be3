#!/usr/bin/env bash
# Install the Debian packages that a group of commands needs, if any is missing: "build" is what `pip install .` needs,
# "test" adds what the tests and checks need; "slurm", "mpi" and "monitoring" what tests under Slurm and Open MPI and with
# Prometheus need, which are skipped without, "spark" what `make engines` needs, "aarch64" what a wheel for ARM needs on
# another machine, "emulated" what tests for ARM need there, "root" what a Debian for ARM needs there, and "browser" what
# looks at the site. Needs root only when something is missing.
set -euo pipefail

build_packages=(g++ libc6-dev libssl-dev make python3-venv python3-pip)
test_packages=(
  ccache          # the wheel and the test build share their objects
  clang clang-format clang-tidy libclang-rt-14-dev
  git
  iproute2        # network namespaces that act as hosts
  libgtest-dev
  openssh-client openssh-server
  procps
)

aarch64_packages=(g++-aarch64-linux-gnu libssl-dev:arm64)

case "${1:-}" in
  build) packages=("${build_packages[@]}") ;;
  test) packages=("${build_packages[@]}" "${test_packages[@]}") ;;
  slurm) packages=(slurmctld slurmd slurm-client munge) ;;
  mpi) packages=(openmpi-bin) ;;
  spark) packages=(openjdk-17-jre-headless) ;;
  monitoring) packages=(prometheus prometheus-node-exporter) ;;
  aarch64) packages=("${build_packages[@]}" "${aarch64_packages[@]}") ;;
  emulated) packages=("${build_packages[@]}" "${aarch64_packages[@]}" libgtest-dev qemu-user-static) ;;
  root) packages=(mmdebstrap qemu-user-static binfmt-support) ;;
  browser) packages=(chromium fonts-dejavu-core) ;;
  *) echo "usage: $0 build|test|slurm|mpi|monitoring|spark|aarch64|emulated|root|browser" >&2; exit 2 ;;
esac

if ! command -v dpkg-query > /dev/null; then
  echo "install-deps: not a Debian system; make sure that you have the likes of: ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2> /dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

# A Python that does not come from Debian brings its own venv and pip.
if python3 -c 'import ensurepip, venv' 2> /dev/null; then
  kept=()
  for package in "${missing[@]}"; do
    case "$package" in python3-*) ;; *) kept+=("$package") ;; esac
  done
  missing=("${kept[@]+"${kept[@]}"}")
  [ ${#missing[@]} -gt 0 ] || exit 0
fi

# Libraries of another architecture are Debian's as well. Both architectures must have one version of a package.
foreign=
if [[ " ${missing[*]} " == *:arm64\ * ]] && [ "$(dpkg --print-architecture)" != arm64 ]; then
  foreign=arm64
  missing+=(libssl-dev)
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "install-deps: these Debian packages are missing, and installing them needs root. Run this, then try again:" >&2
  echo "  ${foreign:+sudo dpkg --add-architecture $foreign && }sudo apt-get update && sudo apt-get install ${missing[*]}" >&2
  exit 1
fi
[ -z "$foreign" ] || dpkg --add-architecture "$foreign"
echo "install-deps: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"

#!/usr/bin/env bash
# Run every fuzz target of a build folder, as many at once as there are cores: run_fuzz.sh FOLDER SECONDS. The targets
# share that many seconds of computing.
# Each begins with its seeds, which make_corpus writes, and with what earlier runs have found interesting.
# A finding is left beside the target as <target>.crash-*, whose exit status stops this script.
set -euo pipefail

folder=$1
seconds=$2
mapfile -t targets < <(find "$folder/tests/fuzz" -maxdepth 1 -type f -name '*_fuzz' -perm -u+x | sort)
if [ ${#targets[@]} -eq 0 ]; then
  echo "run_fuzz: no target in $folder/tests/fuzz" >&2
  exit 1
fi

"$folder/tests/fuzz/make_corpus" "$folder/tests/fuzz"
fuzz() {
  local target=$1 each=$2
  if ! compgen -G "$target.corpus/seed-*" > /dev/null; then
    echo "run_fuzz: make_corpus has no seeds for $(basename "$target")" >&2
    exit 1
  fi
  "$target" -max_total_time="$each" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$target." "$target.corpus" > "$target.log" 2>&1 || {
    tail -n 60 "$target.log"
    exit 1
  }
  echo "run_fuzz: $(basename "$target") for $each s: $(grep -E 'number_of_executed_units|peak_rss' "$target.log" | xargs)"
}
export -f fuzz
each=$((seconds / ${#targets[@]}))
printf '%s\0' "${targets[@]}" | xargs -0 -I {} -P "$(nproc)" bash -euo pipefail -c 'fuzz "$1" "$2"' fuzz {} "$each"
echo "run_fuzz: ${#targets[@]} targets, no finding"

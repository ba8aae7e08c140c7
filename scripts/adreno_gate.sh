#!/usr/bin/env bash
# Compiles every shader variant for the Adrenos of $ADRENO_GPUS with Mesa's compiler, and fails when one spills, or
# multiplies packed bytes without the instruction for it, or is worse than benches/adreno.json allows.
# The tables (instructions, registers, threads in flight, multiply-adds) go to target/adreno/ID.txt.
#
#   scripts/adreno_gate.sh                              all variants of the committed bundles
#   scripts/adreno_gate.sh --report                     what a phone picks, printed; writes benches/adreno.{json,md}, or
#                                                       with ADRENO_GPUS target/adreno/adreno.{json,md}
#   scripts/adreno_gate.sh FILE.spv[@ID=VALUE,...]...   these modules; their tables are printed
#
# Numbers compare variant with variant on one compiler version. They say nothing about speed on a phone.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
tables=$target/adreno
mkdir -p "$tables"

"$root/scripts/setup.sh" build
"$root/scripts/mesa_root.sh" > /dev/null
cargo build --quiet --manifest-path "$root/Cargo.toml" --target-dir "$target" -p adreno-gate

mode=${1:-}
rows=()
failed=0
for id in ${ADRENO_GPUS:-660 730 750 830}; do
  table=$tables/$id.txt
  status=0
  case $mode in
    "") set -- --against "$root/benches/adreno.json" ;;
    --report)
      rows+=("$tables/$id.json")
      set -- --rows "$tables/$id.json"
      ;;
  esac
  # The shim reports queries that it does not know, on every start.
  "$root/scripts/mesa_root.sh" adreno "$id" "$target/debug/adreno-gate" "$@" \
    > "$table" 2> "$table.log" || status=$?
  grep -v '^Unknown DRM_IOCTL_MSM_GET_PARAM' "$table.log" >&2 || true
  [ -z "$mode" ] || cat "$table"
  case $status in
    0) ;;
    1 | 2) failed=1 ;;
    *)
      echo "adreno-gate ended with $status on Adreno $id, after: $(tail -n 1 "$table")" >&2
      failed=1
      ;;
  esac
done
if [ "$mode" = --report ] && [ "$failed" = 0 ]; then
  written=$root/benches
  [ -z "${ADRENO_GPUS:-}" ] || written=$tables
  "$target/debug/adreno-gate" --table "$written/adreno.json" "$written/adreno.md" "${rows[@]}"
  echo "wrote $written/adreno.json and $written/adreno.md"
fi
exit "$failed"

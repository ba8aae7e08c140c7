#!/usr/bin/env bash
# Builds the command-line tool for 64-bit Android, runs its benchmarks on phones, and brings the JSON back.
# Not run on a phone: written without an NDK and a phone at hand. tests/phone_script.rs runs it with stand-ins for both.
#
#   benches/android/bench.sh [-s SERIAL]... [MODEL.pt2...]
#
# Takes cargo-ndk (cargo install cargo-ndk), Rust's target (rustup target add aarch64-linux-android), an NDK
# (ANDROID_NDK_HOME), and adb with phones in debugging mode. -s names a phone as `adb devices` lists it; without it,
# ANDROID_SERIAL or the only one is taken. Inputs of MODEL.pt2 are MODEL.npz or MODEL.safetensors beside it; without them
# the tool makes some up. Settings, by environment variables:
#
#   SHAPES          shapes of linears             (default: 1x768x768 1x2048x2048 128x768x768 512x1024x1024)
#   DTYPES          their dtypes                  (default: f32 f16 int8 int4)
#   RUNS            timed runs of each            (default: 50)
#   COOL_DOWN_S     seconds of rest before each   (default: 5; a hot phone clocks its GPU down)
#   TUNE_S          seconds to tune a model       (default: 60; 0 does not tune)
#   OUT             folder for the results        (default: target/android-bench; with several phones, a folder in it each)
#   REMOTE          folder on the phone           (default: /data/local/tmp/vkdelegate)
set -euo pipefail

say() { printf 'bench.sh: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

serials=()
while getopts :s: option; do
  case $option in
    s) serials+=("$OPTARG") ;;
    *) die "usage: bench.sh [-s SERIAL]... [MODEL.pt2...]" ;;
  esac
done
shift $((OPTIND - 1))
for model in "$@"; do
  [ -r "$model" ] || die "cannot read $model"
done

root=$(cd "$(dirname "$0")/../.." && pwd)
target=aarch64-linux-android
# Oldest Android whose Vulkan loader offers 1.1.
platform=28
remote=${REMOTE:-/data/local/tmp/vkdelegate}
read -ra shapes <<< "${SHAPES:-1x768x768 1x2048x2048 128x768x768 512x1024x1024}"
read -ra dtypes <<< "${DTYPES:-f32 f16 int8 int4}"
runs=${RUNS:-50}
cool_down_s=${COOL_DOWN_S:-5}
tune_s=${TUNE_S:-60}
results=${OUT:-$root/target/android-bench}

need() {
  local tool
  for tool in cargo adb; do
    [ -x "$(command -v "$tool")" ] || die "$tool is missing"
  done
  cargo ndk --version >/dev/null 2>&1 || die "cargo-ndk is missing: cargo install cargo-ndk"
  if [ -x "$(command -v rustup)" ] && ! rustup target list --installed | grep -qx "$target"; then
    die "Rust's target is missing: rustup target add $target"
  fi
}

build() {
  say "building for $target"
  (cd "$root" && cargo ndk --target arm64-v8a --platform "$platform" build --release --bin vkdelegate) >&2
  binary=${CARGO_TARGET_DIR:-$root/target}/$target/release/vkdelegate
  [ -r "$binary" ] || die "the build left no $binary"
}

# The arguments as one line for the phone's shell: adb joins what it is given, and quotes nothing.
quoted() {
  local argument line=
  for argument in "$@"; do
    line+="'${argument//\'/\'\\\'\'}' "
  done
  printf '%s' "$line"
}

# What is read before "</dev/null" would be adb's, not that of the loop around it.
on_phone() { adb shell "$(quoted "$@")" </dev/null; }

# Runs the tool on the phone with the arguments behind $1, and keeps what it prints in the file $1.
tool() {
  local file=$out/$1 status=0
  shift
  on_phone env "TMPDIR=$remote" "$remote/vkdelegate" "$@" > "$file.part" || status=$?
  # 1 is a check that failed: the document says which.
  if [ "$status" -le 1 ] && [ -s "$file.part" ]; then
    mv "$file.part" "$file"
    say "$file"
  else
    rm -f "$file.part"
  fi
  if [ "$status" != 0 ]; then
    say "failed ($status): $*"
    failed=1
  fi
}

bench() {
  sleep "$cool_down_s"
  tool "$1" bench "${@:2}" --runs "$runs" --json
}

bench_linears() {
  local shape dtype repeat
  for dtype in "${dtypes[@]}"; do
    for shape in "${shapes[@]}"; do
      # One row alone is mostly the cost of a submission.
      case $shape in 1x*) repeat=16 ;; *) repeat=1 ;; esac
      bench "linear-$shape-$dtype.json" --op linear --shape "$shape" --dtype "$dtype" --repeat "$repeat"
    done
  done
}

# A model as it is, and with the kernels that tuning chose.
bench_model() {
  local model=$1 name precision inputs=() kept=() extension
  name=$(basename "$model" .pt2)
  adb push "$model" "$remote/model.pt2" >&2
  for extension in npz safetensors; do
    if [ -r "${model%.pt2}.$extension" ]; then
      adb push "${model%.pt2}.$extension" "$remote/inputs.$extension" >&2
      inputs=(--inputs "$remote/inputs.$extension")
      break
    fi
  done
  for precision in f32 f16; do
    bench "$name-$precision.json" "$remote/model.pt2" --precision "$precision" ${inputs[@]+"${inputs[@]}"}
    [ "$tune_s" != 0 ] || continue
    kept=(--precision "$precision" --cache-dir "$remote/tuned" ${inputs[@]+"${inputs[@]}"})
    tool "$name-$precision-tune.json" tune "$remote/model.pt2" --budget "$tune_s" --json "${kept[@]}"
    bench "$name-$precision-tuned.json" "$remote/model.pt2" "${kept[@]}"
  done
  on_phone rm -rf "$remote/model.pt2" "$remote/inputs.npz" "$remote/inputs.safetensors" "$remote/tuned"
}

# Everything on the phone that adb takes.
bench_phone() {
  local model
  [ "$(adb get-state 2>/dev/null || true)" = device ] ||
    die "adb sees no phone, or several: plug one in, allow debugging, name it with -s"
  mkdir -p "$out"
  on_phone mkdir -p "$remote"
  adb push "$binary" "$remote/vkdelegate" >&2
  on_phone chmod 755 "$remote/vkdelegate"
  tool devices.json devices --json
  bench_linears
  for model in "$@"; do
    bench_model "$model"
  done
}

failed=0
need
build
if [ ${#serials[@]} -le 1 ]; then
  [ ${#serials[@]} = 0 ] || export ANDROID_SERIAL=${serials[0]}
  out=$results
  bench_phone "$@"
else
  for serial in "${serials[@]}"; do
    export ANDROID_SERIAL=$serial
    out=$results/$serial
    bench_phone "$@"
  done
fi
[ "$failed" = 0 ] || die "some benchmarks failed"

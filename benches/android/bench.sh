#!/usr/bin/env bash
# Builds the command-line tool for 64-bit Android, runs its benchmarks on a phone, and brings the JSON back.
# UNTESTED: written without an NDK and a phone at hand.
#
#   benches/android/bench.sh [MODEL.pt2...]
#
# Takes cargo-ndk (cargo install cargo-ndk), Rust's target (rustup target add aarch64-linux-android), an NDK
# (ANDROID_NDK_HOME), and adb with a phone in debugging mode. Settings, by environment variables:
#
#   ANDROID_SERIAL  which phone, as adb takes it
#   SHAPES          shapes of linears             (default: 1x768x768 1x2048x2048 128x768x768 512x1024x1024)
#   DTYPES          their dtypes                  (default: f32 f16 int8 int4)
#   RUNS            timed runs of each            (default: 50)
#   COOL_DOWN_S     seconds of rest before each   (default: 5; a hot phone clocks its GPU down)
#   OUT             folder for the results        (default: target/android-bench)
set -euo pipefail
cd "$(dirname "$0")/../.."

say() { printf 'bench.sh: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

target=aarch64-linux-android
# Oldest Android whose Vulkan loader offers 1.1.
platform=28
remote=/data/local/tmp/vkdelegate
read -ra shapes <<< "${SHAPES:-1x768x768 1x2048x2048 128x768x768 512x1024x1024}"
read -ra dtypes <<< "${DTYPES:-f32 f16 int8 int4}"
runs=${RUNS:-50}
cool_down_s=${COOL_DOWN_S:-5}
out=${OUT:-target/android-bench}

need() {
  local tool
  for tool in cargo adb; do
    [ -x "$(command -v "$tool")" ] || die "$tool is missing"
  done
  cargo ndk --version >/dev/null 2>&1 || die "cargo-ndk is missing: cargo install cargo-ndk"
  [ "$(adb get-state 2>/dev/null || true)" = device ] ||
    die "adb sees no phone, or several: plug one in, allow debugging, set ANDROID_SERIAL"
}

build() {
  say "building for $target"
  cargo ndk --target arm64-v8a --platform "$platform" build --release --bin vkdelegate
  adb shell mkdir -p "$remote"
  adb push "target/$target/release/vkdelegate" "$remote/vkdelegate" >&2
  adb shell chmod 755 "$remote/vkdelegate"
}

# Runs the tool on the phone with the arguments behind $1, and keeps what it prints in the file $1.
on_phone() {
  local file=$1 command="$remote/vkdelegate" argument
  shift
  # adb joins its arguments and gives them to the phone's shell: each is quoted for that.
  for argument in "$@"; do
    command+=" '${argument//\'/\'\\\'\'}'"
  done
  # What is read before "</dev/null" would be adb's, not the loop's.
  if adb shell "TMPDIR=$remote $command" </dev/null > "$out/$file.part"; then
    mv "$out/$file.part" "$out/$file"
    say "$out/$file"
  else
    say "failed: $*"
    rm -f "$out/$file.part"
    failed=1
  fi
}

bench() {
  sleep "$cool_down_s"
  on_phone "$1" bench "${@:2}" --runs "$runs" --json
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

bench_models() {
  local model name precision
  for model in "$@"; do
    name=$(basename "$model" .pt2)
    adb push "$model" "$remote/$name.pt2" >&2
    for precision in f32 f16; do
      bench "$name-$precision.json" "$remote/$name.pt2" --precision "$precision"
    done
    adb shell rm -f "'$remote/$name.pt2'"
  done
}

failed=0
need
build
mkdir -p "$out"
on_phone devices.json devices --json
bench_linears
bench_models "$@"
[ "$failed" = 0 ] || die "some benchmarks failed"

#!/usr/bin/env bash
# Builds the library as an embedder may have to, then all of the crate, and runs the unit tests: in a path with a space, from
# a source tree that must not change, and with nothing on the PATH but Rust and a C linker (no cmake, ninja, python or
# Vulkan SDK).
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
source_tree="$work/source tree"
tools="$work/bin"
mkdir -p "$source_tree" "$tools"
git archive HEAD | tar -x -C "$source_tree"

# Rust's own programs, asked for by their real place: rustup's proxies need a home folder's settings.
for tool in cargo rustc rustdoc; do
  ln -s "$(rustup which "$tool" 2>/dev/null || command -v "$tool")" "$tools/$tool"
done
for tool in cc ld as ar; do
  ln -s "$(command -v "$tool")" "$tools/$tool"
done

contents() { (cd "$source_tree" && find . -type f -print0 | sort -z | xargs -0 sha256sum); }
before=$(contents)
chmod -R a-w "$source_tree"

cd "$source_tree"
bare() { env PATH="$tools" CARGO_TARGET_DIR="$work/target" CARGO_PROFILE_DEV_DEBUG=0 cargo "$1" --quiet --locked "${@:2}"; }
bare build --no-default-features --lib
bare build
bare test --lib

[ "$before" = "$(contents)" ] || { echo "bare_build.sh: the build changed its source tree" >&2; exit 1; }
echo "all builds, and unit tests pass, from a read-only path with a space, with Rust and a C linker alone"

#!/usr/bin/env bash
# Builds the GLSL compiler (libshaderc_combined.a) once, keeps it in the user's cache folder, and prints that
# folder, for SHADERC_LIB_DIR. Only `make shaders` and CI need it: building vkdelegate itself takes no C++.
set -euo pipefail

say() { printf 'shaderc.sh: %s\n' "$*" >&2; }

root=$(cd "$(dirname "$0")/.." && pwd)
# The version that Cargo.lock pins, so that everyone's compiled shaders are the same bytes.
version=$(awk '/^name = / { name = $3 } /^version = / && name == "\"shaderc\"" { gsub("\"", "", $3); print $3 }' "$root/Cargo.lock")
[ -n "$version" ] || { say "Cargo.lock names no shaderc crate"; exit 1; }
cache=${XDG_CACHE_HOME:-$HOME/.cache}/vkdelegate/shaderc/$version
library=$cache/libshaderc_combined.a

# Linking with the library takes the C++ standard library, so the set-up is not only for the build.
"$root/scripts/setup.sh" shaderc
mkdir -p "$cache"
# One build at a time: a second caller waits for the first one's library.
exec 9> "$cache/.lock"
flock 9
if [ ! -s "$library" ]; then
  say "building shaderc $version from source, once (about 13 minutes on 2 cores)"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir "$work/src"
  echo 'fn main() {}' > "$work/src/main.rs"
  cat > "$work/Cargo.toml" <<TOML
[package]
name = "shaderc-build"
version = "0.0.0"
edition = "2021"

[dependencies]
shaderc = { version = "=$version", features = ["build-from-source"] }

[workspace]
TOML
  (cd "$work" && env -u SHADERC_LIB_DIR CARGO_TARGET_DIR="$work/target" cargo build --quiet >&2)
  built=$(find "$work/target" -name libshaderc_combined.a -print -quit)
  [ -n "$built" ] || { say "the build left no libshaderc_combined.a"; exit 1; }
  cp "$built" "$library.new"
  mv "$library.new" "$library"
fi
echo "$cache"

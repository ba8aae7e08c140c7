#!/usr/bin/env bash
# Type-checks the library for 64-bit Android with this machine's Rust. No NDK is needed: nothing is linked.
#
#   scripts/android_check.sh            with rustup's target where it is installed or can be had, else from sources
#   scripts/android_check.sh sources    with the standard library checked from its sources in any case
#
# Sources of the standard library must be those of the very rustc in use. They are rustup's where it has them, else come
# out of Debian's package rust-src (unpacked, never installed), once, into the user's cache folder.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'android_check.sh: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

target=aarch64-linux-android
sysroot=$(rustc --print sysroot)
version=$(rustc -vV | sed -n 's/^release: //p')
cache=${XDG_CACHE_HOME:-$HOME/.cache}/vkdelegate
# Backports keep several versions of Rust in a small list; the last two have large lists.
suites=(trixie-backports trixie forky sid)

# Where the checked crate's files go: apart, as the flags of a check from sources would make everything else stale.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/android

has_target() { [ -d "$sysroot/lib/rustlib/$target/lib" ]; }

add_target() {
  [ -x "$(command -v rustup)" ] || return 1
  say "rustup target add $target"
  timeout 300 rustup target add "$target" >&2 && has_target
}

# apt with lists of its own, for one suite of the Debian mirror that this machine already uses.
apt_of() {
  local suite=$1 command=$2 mirror
  shift 2
  # shellcheck disable=SC2016  # apt expands these
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN)' |
    awk '$2 == "Debian" && $1 !~ /security/ { uri = $1 } END { print uri }')
  mkdir -p "$work/$suite/lists/partial" "$work/$suite/cache/archives/partial"
  echo "deb ${DEBIAN_MIRROR:-${mirror:-http://deb.debian.org/debian}} $suite main" > "$work/$suite/sources.list"
  "$command" -o Dir::Etc::SourceList="$work/$suite/sources.list" -o Dir::Etc::SourceParts=- \
    -o Dir::State::Lists="$work/$suite/lists" -o Dir::Cache="$work/$suite/cache" \
    -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Sandbox::User="$(id -un)" "$@"
}

# The suite of Debian that has the sources of this rustc, and their package's version.
find_package() {
  local suite package
  [ -x "$(command -v apt-get)" ] || return 0
  for suite in "${suites[@]}"; do
    say "looking for rust-src $version in Debian's $suite"
    apt_of "$suite" apt-get -qq update >&2 || continue
    package=$(apt_of "$suite" apt-cache madison rust-src |
      awk -F ' *[|] *' -v version="$version" 'index($2, version "+") == 1 || index($2, version "-") == 1 { print $2; exit }')
    [ -z "$package" ] || { echo "$suite $package"; return; }
  done
}

# Puts the sources into the folder $1.
unpack_sources() {
  local into=$1 suite package
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  read -r suite package <<< "$(find_package)"
  [ -n "$package" ] || die "no sources of the standard library of rustc $version: run 'rustup component add rust-src'," \
    "or use a Rust that Debian packages as rust-src (in ${suites[*]}), or one for which 'rustup target add $target' works"
  say "unpacking rust-src $package"
  (cd "$work" && apt_of "$suite" apt-get -qq download "rust-src=$package" >&2)
  mkdir "$work/sources"
  dpkg-deb --fsys-tarfile "$work"/rust-src_*.deb |
    tar -x -C "$work/sources" --strip-components=4 --wildcards './usr/src/rustc-*/library'
  rm -rf "$into"
  mkdir -p "$(dirname "$into")"
  mv "$work/sources" "$into"
}

# Prints the folder `library` of the sources of this rustc.
sources() {
  local from_rustup=$sysroot/lib/rustlib/src/rust/library from_debian=$cache/rust-src-$version
  if [ -d "$from_rustup" ]; then
    echo "$from_rustup"
  else
    [ -d "$from_debian/library" ] || unpack_sources "$from_debian"
    echo "$from_debian/library"
  fi
}

check() { cargo check --quiet --locked --target "$target" --no-default-features --lib "$@"; }

case ${1:-} in
  "") if has_target || add_target; then from=target; else from=sources; fi ;;
  sources) from=sources ;;
  *) die "unknown word '$1'" ;;
esac
if [ "$from" = target ]; then
  check
else
  library=$(sources)
  # Both variables are meant for Rust's own tests, but a stable cargo has no other way to check a standard library from sources.
  RUSTC_BOOTSTRAP=1 __CARGO_TESTS_ONLY_SRC_ROOT=$library check -Zbuild-std=std,panic_abort
fi
echo "the library passes cargo check for $target with rustc $version (standard library: $from)"

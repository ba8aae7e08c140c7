#!/usr/bin/env bash
# Unpacks (never installs) a small Debian root with Mesa's Adreno driver, turnip, and the shims that stand in for
# the hardware, into the user's cache folder, and prints the root's path. About 80 MB, 20 seconds, once.
#
#   scripts/mesa_root.sh                     prints the root
#   scripts/mesa_root.sh adreno ID COMMAND   runs a program as if on that Adreno (660, 730, 750, 830, ...)
#
# Programs run through the root's own dynamic linker: its libraries are newer than the system's.
# On the Adreno shim shaders compile for real, but nothing executes: results are garbage.
set -euo pipefail

die() { printf 'mesa_root.sh: %s\n' "$*" >&2; exit 1; }

suite=trixie-backports
packages=libvulkan1,libc6,libstdc++6,mesa-vulkan-drivers,mesa-drm-shim,vulkan-validationlayers
root=${XDG_CACHE_HOME:-$HOME/.cache}/vkdelegate/mesa-$suite
libraries=$root/usr/lib/x86_64-linux-gnu
icd=$root/turnip_icd.json

# The Debian mirror that this machine already uses.
mirror() {
  local uri
  # shellcheck disable=SC2016  # apt expands these
  uri=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN)' |
    awk '$2 == "Debian" && $1 !~ /security/ { uri = $1 } END { print uri }')
  echo "${DEBIAN_MIRROR:-${uri:-http://deb.debian.org/debian}}"
}

unpack() {
  local from mode=root
  "$(dirname "$0")/setup.sh" adreno
  from=$(mirror)
  printf 'mesa_root.sh: unpacking Mesa of %s into %s\n' "$suite" "$root" >&2
  rm -rf "$root.new"
  # Unpacking runs nothing of the root, so it takes no privilege either.
  [ "$(id -u)" = 0 ] || mode=chrootless
  mmdebstrap --mode="$mode" --variant=extract --architectures=amd64 --quiet \
    --aptopt="APT::Default-Release \"$suite\"" --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Retries "3"' \
    --include="$packages" trixie "$root.new" \
    "deb $from trixie main" "deb $from $suite main" >&2
  [ -e "$root.new/lib" ] || ln -s usr/lib "$root.new/lib"
  # The root's own ICD file names the driver as if the root were '/'.
  printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s", "api_version": "1.3.0"}}\n' \
    "$libraries/libvulkan_freedreno.so" > "$root.new/turnip_icd.json"
  rm -rf "$root"
  mv "$root.new" "$root"
}

[ "$(uname -m)" = x86_64 ] || die "the Adreno compiler is unpacked for x86-64 only, and this is $(uname -m)"
mkdir -p "$(dirname "$root")"
exec 9> "$root.lock"
flock 9
if [ ! -e "$icd" ]; then
  unpack
fi
exec 9>&-

case ${1:-} in
  "") echo "$root" ;;
  adreno)
    [ $# -ge 3 ] || die "usage: scripts/mesa_root.sh adreno ID COMMAND..."
    export FD_GPU_ID=$2 MESA_SHADER_CACHE_DISABLE=true
    export VK_DRIVER_FILES=$icd VK_LAYER_PATH=$root/usr/share/vulkan/explicit_layer.d
    shift 2
    exec "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" \
      --preload "$libraries/libfreedreno_noop_drm_shim.so" "$@"
    ;;
  *) die "unknown word '$1'" ;;
esac

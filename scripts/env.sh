#!/usr/bin/env bash
# Runs a command on one test device, under the validation layer with synchronization checks:
#
#   scripts/env.sh lavapipe cargo test        the default device of the tests
#   scripts/env.sh swiftshader cargo test     the minimum device
#   scripts/env.sh lavapipe                   only prints the settings
set -euo pipefail

die() { printf 'env.sh: %s\n' "$*" >&2; exit 1; }

lavapipe_icd() {
  local folder icd
  for folder in /usr/share/vulkan/icd.d /usr/local/share/vulkan/icd.d /etc/vulkan/icd.d; do
    # Several may be installed (Debian is multi-arch): this machine's own comes first.
    for icd in "$folder/lvp_icd.$(uname -m).json" "$folder/lvp_icd.json" "$folder"/lvp_icd*.json; do
      [ -r "$icd" ] && { echo "$icd"; return; }
    done
  done
  die "no lavapipe driver (lvp_icd*.json) is installed; run scripts/setup.sh"
}

device=${1:-}
[ $# -eq 0 ] || shift
case $device in
  lavapipe) icd=$(lavapipe_icd) ;;
  swiftshader) icd=$("$(dirname "$0")/swiftshader.sh") ;;
  *) die "usage: scripts/env.sh lavapipe|swiftshader [COMMAND...]" ;;
esac

# Newer layers (seen with 1.4.309) look at what shaders access only when the heuristic is on; older ones always do.
# Neither reports a write after a write between two dispatches, nor anything through device addresses: those races
# are the plan verifier's to find.
settings=(
  VK_DRIVER_FILES="$icd"
  VKDELEGATE_VALIDATION=sync
  VK_LAYER_SYNCVAL_SHADER_ACCESSES_HEURISTIC=1
)
if [ $# -gt 0 ]; then
  exec env "${settings[@]}" "$@"
fi
printf '%s\n' "${settings[@]}"

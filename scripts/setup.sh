#!/usr/bin/env bash
# Installs what the tests and tools need, through apt on Debian and Ubuntu.
# Does nothing when all is there; elsewhere it lists what is missing and exits 1.
#
#   scripts/setup.sh [GROUP...]       default: tests
#     build     a C linker for cargo
#     vulkan    a Vulkan loader, and lavapipe (Mesa >= 25.0), the device of machines without a GPU
#     tests     build, vulkan, the validation layer and spirv-val
#     shaderc   what building the GLSL compiler from source takes
#     adreno    what unpacking Mesa's Adreno compiler takes
set -euo pipefail

# The oldest Mesa whose lavapipe passes the tests.
min_mesa=25.0

say() { printf 'setup: %s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

# A field of /etc/os-release, empty where there is none.
os_field() { sed -n "s/^$1=\"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" /etc/os-release 2>/dev/null || true; }

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif have sudo; then
    sudo "$@"
  else
    say "needs root for: $*"
    say "run this script as root, or install sudo"
    exit 1
  fi
}

packages_of() {
  case $1 in
    build) echo gcc libc6-dev ;;
    vulkan) echo libvulkan1 mesa-vulkan-drivers ;;
    tests) echo gcc libc6-dev libvulkan1 mesa-vulkan-drivers vulkan-validationlayers spirv-tools ;;
    shaderc) echo gcc g++ libc6-dev cmake ninja-build python3 git ;;
    adreno) echo mmdebstrap debian-archive-keyring ;;
  esac
}

installed_version() {
  # shellcheck disable=SC2016  # dpkg-query expands these
  { dpkg-query -W -f '${db:Status-Status} ${Version}\n' "$1" 2>/dev/null || true; } |
    awk '$1 == "installed" { version = $2 } END { print version }'
}

is_satisfied() {
  local version
  version=$(installed_version "$1")
  [ -n "$version" ] || return 1
  [ "$1" != mesa-vulkan-drivers ] || dpkg --compare-versions "$version" ge "$min_mesa"
}

apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 "$@"; }

# A third-party list that does not answer must not stop the set-up: what
# matters is whether the packages install afterwards.
refresh_lists() {
  say "apt-get update"
  apt_get update || say "apt-get update reported errors; going on with the lists at hand"
}

candidate_version() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p'; }

backports_suite() {
  if [ "$(os_field ID)-$(os_field VERSION_CODENAME)" = debian-bookworm ]; then echo bookworm-backports; fi
}

# The mirror from which apt reads a suite; nothing when it reads none.
mirror_of() {
  # shellcheck disable=SC2016  # apt expands these
  apt-get indextargets --format '$(RELEASE) $(REPO_URI)' |
    awk -v suite="$1" '$1 == suite { mirror = $2 } END { print mirror }'
}

# Debian 12 ships Mesa 22.3; a newer one is in its backports suite, on the mirror that the machine already uses.
enable_backports() {
  local suite=$1 mirror list=/etc/apt/sources.list.d/vkdelegate-backports.list
  [ -z "$(mirror_of "$suite")" ] || return 0
  mirror=$(mirror_of "${suite%-backports}")
  say "enabling $suite in $list"
  echo "deb ${mirror:-http://deb.debian.org/debian} $suite main" | as_root tee "$list" >/dev/null
  refresh_lists
}

install_mesa() {
  local suite target=()
  suite=$(backports_suite)
  if ! dpkg --compare-versions "$(candidate_version mesa-vulkan-drivers)" ge "$min_mesa"; then
    if [ -n "$suite" ]; then
      enable_backports "$suite"
      target=(-t "$suite")
    fi
  fi
  say "installing mesa-vulkan-drivers${suite:+ from $suite}"
  apt_get install -y --no-install-recommends "${target[@]}" mesa-vulkan-drivers
  is_satisfied mesa-vulkan-drivers && return
  say "Mesa $(installed_version mesa-vulkan-drivers) is too old: lavapipe of Mesa $min_mesa or newer is needed"
  say "use Debian 12 or newer, Ubuntu 24.04 or newer with its updates, or a newer Mesa of your own"
  exit 1
}

setup_apt() {
  local missing=() others=() package
  for package in $(printf '%s\n' "$@" | sort -u); do
    is_satisfied "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "missing: ${missing[*]}"
  refresh_lists
  for package in "${missing[@]}"; do
    [ "$package" = mesa-vulkan-drivers ] || others+=("$package")
  done
  if [ ${#others[@]} -gt 0 ]; then
    say "installing ${others[*]}"
    apt_get install -y --no-install-recommends "${others[@]}"
  fi
  case " ${missing[*]} " in *" mesa-vulkan-drivers "*) install_mesa ;; esac
}

# Without apt: look for the things themselves, and list those that are missing.
lack() { printf '  - %s\n' "$1" >&2; lacking=1; }

lack_vulkan() {
  ldconfig -p 2>/dev/null | grep -q 'libvulkan\.so\.1' ||
    lack "the Vulkan loader (libvulkan.so.1; package vulkan-loader or vulkan-icd-loader)"
  "$(dirname "$0")/env.sh" lavapipe >/dev/null 2>&1 ||
    lack "lavapipe of Mesa $min_mesa or newer (lvp_icd*.json; package mesa-vulkan-drivers or vulkan-swrast)"
}

list_missing() {
  local group lacking=0
  say "this is not Debian or Ubuntu, so nothing is installed; still to be installed by hand:"
  have cc || lack "a C compiler that cargo can link with (gcc or clang, called cc)"
  for group in "$@"; do
    case $group in
      vulkan) lack_vulkan ;;
      tests)
        lack_vulkan
        [ -r /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json ] ||
          lack "the Khronos validation layer (package vulkan-validation-layers)"
        have spirv-val || lack "spirv-val (package spirv-tools)"
        ;;
      shaderc) for tool in c++ cmake ninja python3 git; do have "$tool" || lack "$tool"; done ;;
      adreno) lack "Debian or Ubuntu with mmdebstrap: Mesa's Adreno compiler is unpacked from Debian packages" ;;
    esac
  done
  [ "$lacking" = 0 ] || exit 1
  say "nothing"
}

main() {
  local groups=("$@") packages=() found=() group
  [ ${#groups[@]} -gt 0 ] || groups=(tests)
  for group in "${groups[@]}"; do
    case $group in
      build | vulkan | tests | shaderc | adreno) ;;
      *) say "unknown group '$group': build, vulkan, tests, shaderc or adreno"; exit 2 ;;
    esac
    read -ra found <<< "$(packages_of "$group")"
    packages+=("${found[@]}")
  done
  if have apt-get && have dpkg-query; then setup_apt "${packages[@]}"; else list_missing "${groups[@]}"; fi
  have cargo || { say "cargo is missing: install Rust 1.89 or newer (rustup, https://rustup.rs)"; exit 1; }
}

main "$@"

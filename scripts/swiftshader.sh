#!/usr/bin/env bash
# Unpacks SwiftShader, the minimum Vulkan device of the tests, out of the distribution's Chromium package
# (never installed) into the user's cache folder, and prints the path of its ICD JSON.
set -euo pipefail

die() { printf 'swiftshader.sh: %s\n' "$*" >&2; exit 1; }

cache=${XDG_CACHE_HOME:-$HOME/.cache}/vkdelegate/swiftshader
icd=$cache/vk_swiftshader_icd.json
if [ -r "$icd" ] && [ -r "$cache/libvk_swiftshader.so" ]; then
  echo "$icd"
  exit
fi

[ -x "$(command -v apt-get)" ] || die "SwiftShader comes from Debian's chromium-common, and there is no apt-get here"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# The drop of privileges to _apt would need a folder of its own; root may download here.
download() { apt-get -qq -o APT::Sandbox::User="$(id -un)" download chromium-common >&2; }
echo "swiftshader.sh: downloading chromium-common (unpacked, not installed)" >&2
if ! download; then
  # The lists may name a version that is no longer on the mirror.
  if [ "$(id -u)" = 0 ]; then apt-get -qq update >&2 || true; fi
  download || die "apt-get download chromium-common failed: run 'apt-get update' as root and try again (only Debian has it)"
fi
dpkg-deb --fsys-tarfile chromium-common_*.deb |
  tar -x --wildcards --transform 's|.*/||' '*/libvk_swiftshader.so' '*/vk_swiftshader_icd.json'
for file in libvk_swiftshader.so vk_swiftshader_icd.json; do
  [ -s "$file" ] || die "chromium-common holds no $file"
done

mkdir -p "$cache"
mv libvk_swiftshader.so "$cache/"
# An absolute path, so that the JSON works wherever the loader reads it from; it is moved last, as the sign of completion.
sed "s|\"library_path\": *\"[^\"]*\"|\"library_path\": \"$cache/libvk_swiftshader.so\"|" vk_swiftshader_icd.json > icd.new
mv icd.new "$icd"
echo "$icd"

#!/bin/sh
# Fetch the package lists of Debian bookworm, its updates and security fixes, into FOLDER/lists:
#
#     docs/examples/apt-lists.sh FOLDER
set -eu
folder=${1:?usage: $0 FOLDER}
if ! command -v apt-get >/dev/null; then
  echo "$0: apt-get isn't there; on Debian and Ubuntu it is" >&2
  exit 1
fi
mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
folder=$(cd "$folder" && pwd)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [ ! -e "$keyring" ]; then
  echo "$0: the keys of Debian are missing: apt-get install debian-archive-keyring" >&2
  exit 1
fi
cat > "$folder/sources.list" <<LIST
deb [arch=amd64 signed-by=$keyring] http://deb.debian.org/debian bookworm main
deb [arch=amd64 signed-by=$keyring] http://deb.debian.org/debian bookworm-updates main
deb [arch=amd64 signed-by=$keyring] http://deb.debian.org/debian-security bookworm-security main
LIST
exec apt-get update -qq \
  -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=- \
  -o Dir::State::lists="$folder/lists" -o Dir::Cache="$folder/cache" \
  -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Sandbox::User= \
  -o Acquire::Languages=none -o APT::Update::Error-Mode=any

#!/bin/sh
# Makes the secrets of docker-compose.yml, each once; what is there already stays.
#
# The folder is for its owner alone. The files in it are readable, since a container's user has another
# number than yours and Compose mounts each file as it is.
set -eu
umask 077

folder="$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)/secrets"
mkdir -p "$folder"
chmod 700 "$folder"

keep() { # NAME VALUE
  [ -e "$folder/$1" ] && return
  printf '%s' "$2" > "$folder/.$1"
  chmod 444 "$folder/.$1"
  mv "$folder/.$1" "$folder/$1"
  echo "secrets: made $folder/$1"
}
random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
read_secret() { cat "$folder/$1"; }

for name in postgres_owner_password postgres_app_password tan_api_token ray_token grafana_password; do
  keep "$name" "$(random)"
done
keep tan_database_owner_url "postgresql://tan_owner:$(read_secret postgres_owner_password)@postgres:5432/tan"
keep tan_database_url "postgresql://tan_app:$(read_secret postgres_app_password)@postgres:5432/tan"

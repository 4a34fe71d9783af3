#!/usr/bin/env bash
# Copies flite and espeak-ng, installed from Debian's packages, with their libraries into a folder, for a
# training machine that has neither: pack_synthesizers.sh FOLDER [ROOT]   (ROOT: where they are, default /)
set -euo pipefail
folder=$1 root=${2:-}
libraries=$root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$libraries:$libraries/pulseaudio
mkdir -p "$folder/bin" "$folder/lib"
cp "$root/usr/bin/espeak-ng" "$root/usr/bin/flite" "$folder/bin/"
ldd "$folder/bin/espeak-ng" "$folder/bin/flite" | awk '/=> \// {print $3}' |
    grep -v -E '/(libc|libm|libpthread|libdl|librt)\.so' | sort -u | xargs -I{} cp -L {} "$folder/lib/"
mkdir -p "$folder/espeak-ng-data"
cd "$libraries/espeak-ng-data"
cp -r en_dict intonations lang voices phon* "$folder/espeak-ng-data/"

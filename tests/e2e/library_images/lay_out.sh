# Lay out a system that has only these programs and what they are linked to:
#   lay_out.sh ROOT FOLDER PROGRAM...
# The libraries are in FOLDER, but for the loader, which has its place in every program.
set -eu
root=$1
folder=$2
shift 2
mkdir -p "$root/usr/bin" "$root/usr/lib" "$root/usr/lib64" "$root$folder"
ln -s usr/bin usr/lib usr/lib64 "$root"
for program in "$@"; do
    cp -L "$program" "$root/usr/bin"
    ldd "$program" | grep -o '/[^ ]*' | while read -r library; do
        case $library in
        */ld-linux*) cp -L "$library" "$root$library" ;;
        *) cp -L "$library" "$root$folder" ;;
        esac
    done
done

#!/bin/sh
# Builds the library and installs headers, the library, symmetra.pc and a CMake config under a prefix.
set -eu

usage() {
  cat <<'TEXT'
usage: ./install.sh --prefix DIR [--features LIST] [--shared] [--debug] [--archive FILE]

  --prefix DIR     where include/, lib/, lib/pkgconfig/ and lib/cmake/ go
  --features LIST  names of features, separated by commas or spaces:
  --features cuda  build with NVIDIA GPUs; needs nvcc
  --features hip   build with AMD GPUs; needs ROCm's headers and clang
  --features nccl  build with NCCL as a backend, found at run time
  --features nvshmem  build with memory of NVSHMEM, found at run time
  --features multicast  build with sums and stores by NVLink multicast, run on the host device alone
  --features gloo  build for ranks on several hosts; needs Gloo, which programs then link
  --shared         install libsymmetra.so instead of libsymmetra.a
  --debug          build with debug information, and keep it
  --archive FILE   install this libsymmetra.a, built with those features, instead of building one
TEXT
}

fail() { echo "install.sh: $1" >&2 && exit 1; }

prefix= features= archive= shared= strip=--strip-debug
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) prefix=${2:?--prefix needs a directory} && shift 2 ;;
    --features) features=${2:?--features needs a list} && shift 2 ;;
    --archive) archive=${2:?--archive needs a file} && shift 2 ;;
    --shared) shared=yes && shift ;;
    --debug) strip= && shift ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
  esac
done
[ -n "$prefix" ] || { usage >&2 && exit 2; }

mkdir -p "$prefix"
prefix=$(cd "$prefix" && pwd)
[ -z "$archive" ] || archive=$(cd "$(dirname "$archive")" && pwd)/$(basename "$archive")
cd "$(dirname "$0")"
# Like cargo: separated by commas, spaces, or both.
features=$(printf '%s' "$features" | tr -s ', \t' ',,,' | sed 's/^,//; s/,$//')

if [ -z "$archive" ]; then
  [ -n "$strip" ] || export CARGO_PROFILE_RELEASE_DEBUG=true
  # Only cargo knows where: settings and variables move its folder.
  archive=$(cargo build --release -p symmetra --lib --locked ${features:+--features "$features"} --message-format=json-render-diagnostics |
    grep -o '"[^"]*/libsymmetra\.a"' | tail -n 1 | tr -d '"')
fi
[ -f "$archive" ] || fail "no libsymmetra.a: ${archive:-the build failed}"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
libraries="pthread dl rt m"
case ",$features," in
*,gloo,*) libraries="$libraries gloo" ;;
esac
flags=$(printf ' -l%s' $libraries)

# One object that holds what the public headers need. Programs see no other name of it, so that what is inside (Rust's
# standard library, the CUDA runtime) never meets another copy in the program.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nm --defined-only --extern-only --format=posix "$archive" 2>/dev/null | cut -d' ' -f1 >"$work/all"
{
  # Names in Rust end in a hash.
  grep -E '^_Z(T[ISV])?NK?[RO]?8symmetra' "$work/all" | grep -vE '17h[0-9a-f]{16}E|8symmetra(4core|6device|7kernels|8platform)'
  # Called by templates.
  grep -E '^_ZN8symmetra4core11check_(dtype|count)' "$work/all"
} | sort -u >"$work/names"
sed 's/^/--undefined=/' "$work/names" >"$work/roots"
# Groups of sections would be merged with those of the program, whose names are visible.
if [ -n "${LD:-}" ]; then
  ld=$(command -v "$LD") || fail "LD is $LD, but there is no such program: LD must name GNU ld"
else
  ld=$(command -v ld.bfd || command -v ld) || fail "no GNU ld: install binutils, or name it by LD"
fi
"$ld" -r --gc-sections --force-group-allocation "@$work/roots" "$archive" -o "$work/symmetra.o" ||
  fail "$ld cannot link in part: LD must name GNU ld"
# A unique name cannot be made local, a weak name can. Names that nothing needs any more are still undefined. A section
# with LLVM's bitcode does not survive the link.
readelf --syms --wide "$work/symmetra.o" >"$work/symbols"
awk '$5 == "UNIQUE" { print $8 }' "$work/symbols" >"$work/unique"
awk '$7 == "UND" { print $8 }' "$work/symbols" >"$work/undefined"
objcopy --remove-section=.llvmbc --remove-section=.llvmcmd --weaken-symbols="$work/unique" \
  --strip-unneeded-symbols="$work/undefined" $strip "$work/symmetra.o"
objcopy --keep-global-symbols="$work/names" "$work/symmetra.o"

for header in $(cd include && find . -type f | sed 's|^\./||'); do
  mkdir -p "$prefix/include/$(dirname "$header")"
  cp "include/$header" "$prefix/include/$header"
done
mkdir -p "$prefix/lib/pkgconfig" "$prefix/lib/cmake/symmetra" "$prefix/share/symmetra"
cp install/tsan.supp "$prefix/share/symmetra/tsan.supp"
rm -f "$prefix/lib"/libsymmetra.*
if [ -n "$shared" ]; then
  # Before 1.0 a minor version may break programs.
  case $version in
  0.*) soname=libsymmetra.so.${version%.*} ;;
  *) soname=libsymmetra.so.${version%%.*} ;;
  esac
  file=libsymmetra.so.$version
  # Threads and exit handlers of the library need its code until the process ends.
  ${CXX:-c++} -shared -o "$prefix/lib/$file" "$work/symmetra.o" -Wl,-soname,"$soname" -Wl,-z,defs,-z,nodelete $flags
  ln -s "$file" "$prefix/lib/$soname"
  ln -s "$soname" "$prefix/lib/libsymmetra.so"
  kind=SHARED name=libsymmetra.so flags= libraries=
else
  ar rcs "$prefix/lib/libsymmetra.a" "$work/symmetra.o"
  kind=STATIC name=libsymmetra.a
fi
fill() {
  sed -e "s|@VERSION@|$version|g" -e "s|@FLAGS@|$flags|" -e "s|@KIND@|$kind|" -e "s|@NAME@|$name|" \
    -e "s|@PREFIX@|\${CMAKE_CURRENT_LIST_DIR}/../../..|" -e "s|@LIBRARIES@|$(echo "$libraries" | tr ' ' ';')|" "install/$1.in" >"$prefix/$2/$1"
}
fill symmetra.pc lib/pkgconfig
fill symmetra-config.cmake lib/cmake/symmetra
fill symmetra-config-version.cmake lib/cmake/symmetra
echo "symmetra $version is in $prefix"

#!/bin/sh
# Builds the library and installs headers, libsymmetra.a, symmetra.pc and a CMake config under a prefix.
set -eu

usage() {
  cat <<'TEXT'
usage: ./install.sh --prefix DIR [--features cuda,hip,nccl,gloo] [--archive FILE]

  --prefix DIR     where include/, lib/, lib/pkgconfig/ and lib/cmake/ go
  --features cuda  build with NVIDIA GPUs; needs nvcc
  --features hip   build with AMD GPUs; needs ROCm's headers and clang
  --features nccl  build with NCCL as a backend, found at run time
  --features gloo  build for ranks on several hosts; needs Gloo, which programs then link
  --archive FILE   install this libsymmetra.a, built with those features, instead of building one
TEXT
}

prefix= features= archive=
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) prefix=${2:?--prefix needs a directory} && shift 2 ;;
    --features) features=${2:?--features needs a list} && shift 2 ;;
    --archive) archive=${2:?--archive needs a file} && shift 2 ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
  esac
done
[ -n "$prefix" ] || { usage >&2 && exit 2; }

mkdir -p "$prefix"
prefix=$(cd "$prefix" && pwd)
[ -z "$archive" ] || archive=$(cd "$(dirname "$archive")" && pwd)/$(basename "$archive")
cd "$(dirname "$0")"

if [ -z "$archive" ]; then
  # Only cargo knows where: settings and variables move its folder.
  archive=$(cargo build --release -p symmetra --lib --locked ${features:+--features "$features"} --message-format=json-render-diagnostics |
    grep -o '"[^"]*/libsymmetra\.a"' | tail -n 1 | tr -d '"')
fi
[ -f "$archive" ] || { echo "install.sh: no libsymmetra.a: ${archive:-the build failed}" >&2 && exit 1; }
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

for header in $(cd include && find . -type f | sed 's|^\./||'); do
  mkdir -p "$prefix/include/$(dirname "$header")"
  cp "include/$header" "$prefix/include/$header"
done
mkdir -p "$prefix/lib/pkgconfig" "$prefix/lib/cmake/symmetra"
cp "$archive" "$prefix/lib/libsymmetra.a"
case ",$features," in
*,gloo,*) engine=gloo ;;
*) engine= ;;
esac
fill() { sed -e "s|@VERSION@|$version|g" -e "s|@PC_ENGINE@|${engine:+ -l$engine}|" -e "s|@CMAKE_ENGINE@|${engine:+;$engine}|" "install/$1.in" >"$prefix/$2/$1"; }
fill symmetra.pc lib/pkgconfig
fill symmetra-config.cmake lib/cmake/symmetra
fill symmetra-config-version.cmake lib/cmake/symmetra
echo "symmetra $version is in $prefix"

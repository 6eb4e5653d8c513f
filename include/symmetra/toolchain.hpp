/// \file
/// The compiler's settings on which the library's classes depend. Every public header with a class or a function of the
/// library includes this file.
#pragma once

#include <cstddef>

#if __cplusplus < 201703L
#error "the headers of symmetra need C++17: -std=c++17"
#endif

// A program of another ABI links: the names of symmetra's structs, which hold strings and vectors, are equal. It would crash.
#if defined(_GLIBCXX_USE_CXX11_ABI) && !_GLIBCXX_USE_CXX11_ABI
#error "libsymmetra has the strings of libstdc++'s C++11 ABI: compile without -D_GLIBCXX_USE_CXX11_ABI=0"
#endif
#ifdef _GLIBCXX_DEBUG
#error "libsymmetra has the containers of libstdc++ without its debug mode: compile without -D_GLIBCXX_DEBUG; _GLIBCXX_ASSERTIONS is fine"
#endif
#ifdef _LIBCPP_VERSION
#error "libsymmetra has the strings and containers of libstdc++: compile without -stdlib=libc++"
#endif

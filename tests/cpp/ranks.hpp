// Ranks as threads, and checks that print the place of a failure.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "symmetra/symmetra.hpp"

/// Fails the test unless the condition holds.
#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) test::fail(__FILE__, __LINE__, #condition " does not hold"); \
  } while (false)

/// Fails the test unless the two are equal.
#define CHECK_EQ(left, right)                                                                                               \
  do {                                                                                                                      \
    const auto left_value = (left);                                                                                         \
    const auto right_value = (right);                                                                                       \
    if (!(left_value == right_value))                                                                                       \
      test::fail(__FILE__, __LINE__, #left " is " + test::text(left_value) + ", " #right " is " + test::text(right_value)); \
  } while (false)

/// Fails the test unless the expression throws symmetra::Error of this kind; returns the error.
#define CHECK_THROWS(kind, expression) test::thrown(__FILE__, __LINE__, symmetra::ErrorKind::kind, #expression, [&] { (void)(expression); })

namespace test {

[[noreturn]] inline void fail(const char* file, int line, const std::string& words) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, words.c_str());
  std::fflush(stderr);
  std::_Exit(1);
}

template <class T>
std::string text(const T& value) {
  std::ostringstream out;
  if constexpr (std::is_enum_v<T>) {
    out << static_cast<long long>(value);
  } else {
    out << value;
  }
  return out.str();
}

inline symmetra::Error thrown(const char* file, int line, symmetra::ErrorKind kind, const char* expression,
                              const std::function<void()>& run) {
  try {
    run();
  } catch (const symmetra::Error& error) {
    if (error.kind() == kind) return error;
    fail(file, line, std::string(expression) + " threw kind " + text(error.kind()) + ": " + error.what());
  }
  fail(file, line, std::string(expression) + " threw nothing");
}

/// Runs `body` as every rank of a world of threads.
inline void ranks(std::size_t world, const std::function<void(symmetra::Bootstrap&)>& body) {
  auto bootstraps = symmetra::bootstrap::threads(world);
  std::vector<std::thread> threads;
  for (auto& bootstrap : bootstraps) {
    threads.emplace_back([&body, rank = std::move(bootstrap)] {
      try {
        body(*rank);
      } catch (const std::exception& error) {
        fail(__FILE__, __LINE__, "rank " + text(rank->rank()) + " threw: " + error.what());
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace test

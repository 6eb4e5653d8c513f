// A tool of NVTX: writes the domain, text and depth of each range to the file that a variable names. The declarations are the
// part of NVTX's binary interface that a tool needs.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Attributes {
  std::uint16_t version, size;
  std::uint32_t category;
  std::int32_t color_type;
  std::uint32_t color;
  std::int32_t payload_type, reserved;
  std::uint64_t payload;
  std::int32_t message_type;
  const char* message;
};

using Function = void (*)();

struct Callbacks {
  std::size_t bytes;
  int (*functions)(int module, Function*** table, unsigned* size);
};

constexpr std::uint32_t kCallbacks = 1;
constexpr int kCore2 = 5;
constexpr unsigned kPush = 4, kPop = 5, kRegister = 10, kCreate = 12;

std::FILE* file = nullptr;
thread_local int depth = 0;

const void* create(const char* name) {
  std::fprintf(file, "domain %s\n", name);
  return file;
}

const void* register_string(const void*, const char* text) { return strdup(text); }

int push(const void*, const Attributes* range) {
  std::fprintf(file, "%d %s\n", depth, range->message);
  std::fflush(file);
  return depth++;
}

int pop(const void*) { return --depth; }

}  // namespace

extern "C" int InitializeInjectionNvtx2(const void* (*table)(std::uint32_t)) {
  const char* path = std::getenv("SYMMETRA_TEST_RANGES");
  file = path == nullptr ? nullptr : std::fopen(path, "w");
  const auto* callbacks = static_cast<const Callbacks*>(table(kCallbacks));
  Function** functions = nullptr;
  unsigned size = 0;
  if (file == nullptr || callbacks == nullptr || callbacks->functions(kCore2, &functions, &size) == 0 || size <= kCreate) return 0;
  *functions[kPush] = reinterpret_cast<Function>(&push);
  *functions[kPop] = reinterpret_cast<Function>(&pop);
  *functions[kRegister] = reinterpret_cast<Function>(&register_string);
  *functions[kCreate] = reinterpret_cast<Function>(&create);
  return 1;
}

#include "cpp/device/hip/module.hpp"

#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

namespace symmetra::device::hip {
namespace {

struct Kernel {
  const void* host;    ///< the address that host code uses
  const char* symbol;  ///< its name in the code object
};

struct Kernels {
  const void* code_objects = nullptr;  ///< one for each architecture
  std::vector<Kernel> all;
  std::shared_mutex mutex;
  /// By device, then by the address that host code uses.
  std::map<int32_t, std::map<const void*, hipFunction_t>> loaded;
};

// Created by the first registration, which precedes main. Never destroyed, because launches may follow later.
Kernels& kernels() {
  static Kernels* const all = new Kernels;
  return *all;
}

/// The kernel on the current device; nullptr if there is none.
hipFunction_t find(int32_t ordinal, const void* host) {
  Kernels& all = kernels();
  const std::shared_lock lock(all.mutex);
  const auto device = all.loaded.find(ordinal);
  if (device == all.loaded.end()) return nullptr;
  const auto found = device->second.find(host);
  return found == device->second.end() ? nullptr : found->second;
}

}  // namespace

void load_kernels(const Context& context) {
  Kernels& all = kernels();
  const Cold cold(context);
  hipModule_t module = nullptr;
  check(context.api.ModuleLoadData(&module, all.code_objects), context, {"ModuleLoadData"});
  std::map<const void*, hipFunction_t> functions;
  for (const Kernel& kernel : all.all) {
    hipFunction_t function = nullptr;
    const std::string call = std::string("ModuleGetFunction(") + kernel.symbol + ')';
    check(context.api.ModuleGetFunction(&function, module, kernel.symbol), context, {call.c_str()});
    functions.emplace(kernel.host, function);
  }
  const std::lock_guard lock(all.mutex);
  all.loaded[context.ordinal] = std::move(functions);
}

}  // namespace symmetra::device::hip

// The functions that kernels.hip's object file calls, by the names that build.rs assigns: the runtime's with the prefix
// symmetra_. clang emits these signatures.
namespace hip = symmetra::device::hip;

extern "C" {

/// clang's wrapper of code objects: a magic number, a version, their address.
struct SymmetraFatBinary {
  uint32_t magic;
  uint32_t version;
  const void* code_objects;
  const void* unused;
};

const void** symmetra___hipRegisterFatBinary(const SymmetraFatBinary* binary) {
  hip::kernels().code_objects = binary->code_objects;
  return &hip::kernels().code_objects;
}

void symmetra___hipRegisterFunction(const void**, const void* host, char*, const char* symbol, unsigned int, void*, void*, void*, void*,
                                    int*) {
  hip::kernels().all.push_back({host, symbol});
}

/// Called when the process ends, which frees the device's memory.
void symmetra___hipUnregisterFatBinary(const void**) {}

/// For launches with <<<...>>>; the library has none.
hipError_t symmetra___hipPopCallConfiguration(dim3*, dim3*, size_t*, hipStream_t*) { return hipErrorMissingConfiguration; }

hipError_t symmetra_hipLaunchKernel(const void* host, dim3 blocks, dim3 threads, void** args, size_t shared_bytes, hipStream_t stream) {
  const hip::Runtime& hip = hip::runtime();
  int ordinal = -1;
  if (const hipError_t code = hip.GetDevice(&ordinal); code != hipSuccess) return code;
  const hipFunction_t function = hip::find(ordinal, host);
  if (function == nullptr) return hipErrorInvalidDeviceFunction;
  return hip.ModuleLaunchKernel(function, blocks.x, blocks.y, blocks.z, threads.x, threads.y, threads.z,
                                static_cast<unsigned int>(shared_bytes), stream, args, nullptr);
}

}  // extern "C"

// Every kernel that some call runs is among those that each_kernel lists: devices load them by that list.
#include "kernels/dispatch.hpp"

#include <cstdio>
#include <set>

namespace {

using namespace symmetra::kernels;

struct Backend {
  using Entry = const void*;
  static constexpr bool kThreadAnItem = false;
  static constexpr bool kNormsOfAWorld = false;
  static constexpr bool kClusters = false;
  static constexpr bool kQuantisesAtOnce = true;
  template <auto kernel>
  static Entry entry() {
    return reinterpret_cast<const void*>(kernel);
  }
};

std::set<const void*> listed;
int checks = 0, failures = 0;

void check(const void* kernel, const char* what, uint32_t algorithm, uint32_t dtype, uint32_t world) {
  ++checks;
  if (kernel == nullptr || listed.count(kernel) == 1) return;
  ++failures;
  std::printf("FAILED: not listed: %s %u of type %u over %u ranks\n", what, algorithm, dtype, world);
}

/// Exchanges that differ in the properties that select a kernel.
void check_exchanges(ExchangeArgs args, const Learned* learned) {
  for (const uint64_t largest_bytes : {0, 1, 8, 64, 4096}) {
    for (const uint64_t row_bytes : {0, 8}) {
      for (const uintptr_t address : {0, 1, 8}) {
        args.largest_bytes = largest_bytes;
        args.row_bytes = row_bytes;
        args.from[0] = reinterpret_cast<const uint8_t*>(address);
        args.slot_packets = 16;
        for (const Learned* told : {learned, static_cast<const Learned*>(nullptr)}) {
          args.learned = told;
          check(exchange_kernel<Backend>(args), "exchange", args.algorithm, args.dtype, args.world);
        }
      }
    }
  }
}

void check_all() {
  constexpr uint32_t kMoreThanThereAre = 32;
#define LAUNCH(name, Args, bytes) check(kernel<Backend>(Args{}), #name, 0, 0, 0);
#include "kernels/launches.def"
#undef LAUNCH
  for (uint32_t dtype = 0; dtype < kMoreThanThereAre; ++dtype) {
    ScaleArgs scale{};
    scale.dtype = dtype;
    check(kernel<Backend>(scale), "scale", 0, dtype, 1);
    NormArgs norm{};
    norm.dtype = dtype;
    check(kernel<Backend>(norm), "norm", 0, dtype, 1);
    for (uint32_t world = 2; world <= kMaxWorld; ++world) {
      for (uint32_t algorithm = 0; algorithm < kMoreThanThereAre; ++algorithm) {
        FusedNormArgs fused{};
        fused.norm = norm;
        fused.sum.world = world;
        fused.sum.algorithm = algorithm;
        check(kernel<Backend>(fused), "fused norm", algorithm, dtype, world);
      }
    }
  }
  const Learned learned{};
  for (uint32_t world = 2; world <= kMaxWorld; ++world) {
    for (uint32_t dtype = 0; dtype < kMoreThanThereAre; ++dtype) {
      for (uint32_t reduction = 0; reduction <= kAverage; ++reduction) {
        for (uint32_t algorithm = 0; algorithm < kMoreThanThereAre; ++algorithm) {
          AllReduceArgs reduce{};
          reduce.world = world;
          reduce.dtype = dtype;
          reduce.reduction = reduction;
          reduce.algorithm = algorithm;
          for (reduce.codec = 0; reduce.codec < kCodecs; ++reduce.codec) {
            check(kernel<Backend>(reduce), "all-reduce", algorithm, dtype, world);
          }
          ExchangeArgs args{};
          args.world = world;
          args.dtype = dtype;
          args.reduction = reduction;
          args.algorithm = algorithm;
          for (args.sources = 0; args.sources <= world; ++args.sources) check_exchanges(args, &learned);
        }
      }
    }
  }
}

}  // namespace

int main() {
  const int32_t code = each_kernel<Backend>([](const void* kernel) {
    listed.insert(kernel);
    return 0;
  });
  check_all();
  std::printf("dispatch: %zu kernels, %d checks, %d failed\n", listed.size() - listed.count(nullptr), checks, failures);
  return code == 0 && failures == 0 ? 0 : 1;
}

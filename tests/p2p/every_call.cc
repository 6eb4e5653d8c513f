// Every type and operation of the API, streams, memory, and errors. Ranks meet by MPI where the
// program is built with it, else by TCP as `symmetra launch` arranges it. Each rank prints `rank R ok`.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "program.hpp"

namespace {

constexpr ReduceOp kOps[] = {ReduceOp::SUM, ReduceOp::PROD, ReduceOp::MIN, ReduceOp::MAX, ReduceOp::AVG};

/// A rank's input: the same wherever it is made. Floats of Schedule::CLASSIC, which has no one order of ranks, are
/// powers of two whose sums and products are exact.
template <class T>
std::vector<T> input_of(Schedule schedule, int rank, size_t count) {
  std::mt19937_64 random(static_cast<uint64_t>(rank) * 977 + count);
  std::vector<T> values(count);
  for (T& value : values) {
    if constexpr (std::is_floating_point_v<T>) {
      const auto bits = static_cast<int64_t>(random());
      const double power = std::ldexp(bits < 0 ? -1 : 1, static_cast<int>(bits & 7) - 4);
      value = static_cast<T>(schedule == Schedule::CLASSIC ? power : static_cast<double>(bits) * 0x1p-62);
    } else {
      value = static_cast<T>(random());
    }
  }
  return values;
}

/// The reduction of the ranks' values, in rank order; integers wrap, except the sum of an average of narrow integers.
template <class T>
T reduce(ReduceOp op, const std::vector<T>& ranks) {
  using Wide = std::conditional_t<std::is_floating_point_v<T>, T, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
  const auto step = [op](T a, T b) -> T {
    if (op == ReduceOp::MIN) return std::min(a, b);
    if (op == ReduceOp::MAX) return std::max(a, b);
    if constexpr (std::is_floating_point_v<T>) {
      return op == ReduceOp::PROD ? a * b : a + b;
    } else {
      const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
      return static_cast<T>(op == ReduceOp::PROD ? x * y : x + y);
    }
  };
  if (op == ReduceOp::AVG) {
    Wide sum = ranks[0];
    for (size_t rank = 1; rank < ranks.size(); ++rank) {
      if constexpr (std::is_floating_point_v<T>) {
        sum += ranks[rank];
      } else {
        sum = static_cast<Wide>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(ranks[rank]));
      }
    }
    return static_cast<T>(sum / static_cast<Wide>(ranks.size()));
  }
  T result = ranks[0];
  for (size_t rank = 1; rank < ranks.size(); ++rank) result = step(result, ranks[rank]);
  return result;
}

template <class T>
std::vector<T> expected_of(Schedule schedule, ReduceOp op, int ranks, size_t count) {
  std::vector<std::vector<T>> inputs;
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back(input_of<T>(schedule, rank, count));
  std::vector<T> expected(count), column(inputs.size());
  for (size_t i = 0; i < count; ++i) {
    for (size_t rank = 0; rank < inputs.size(); ++rank) column[rank] = inputs[rank][i];
    expected[i] = reduce(op, column);
  }
  return expected;
}

struct Rank {
  Bootstrap& bootstrap;
  SymmMemManager& memory;
  AllReduce& all_reduce;
  int rank;
  int ranks;
};

/// One type, every operation: plain memory out of place and in place, and memory of the manager; on two streams. Counts
/// on both sides of the 32 KiB at which Schedule::CLASSIC changes.
template <class T>
void every_operation(const Rank& self, Schedule schedule, hipDataType datatype, hipStream_t stream) {
  AllReduce all_reduce(self.bootstrap, self.memory, schedule);
  for (const size_t count : {size_t{1}, size_t{7}, size_t{1000}, size_t{4097}, size_t{8192}, size_t{8193}, size_t{20'001}}) {
    const std::vector<T> own = input_of<T>(schedule, self.rank, count);
    Array<T> input(count), output(count);
    SymmMemObj* shared = self.memory.Malloc(count * sizeof(T));
    for (const ReduceOp op : kOps) {
      const std::vector<T> expected = expected_of<T>(schedule, op, self.ranks, count);
      input.set(own);
      all_reduce.Execute(input.data(), output.data(), count, datatype, op, stream);
      all_reduce.Execute(input.data(), shared->Get(), count, datatype, op);
      all_reduce.Synchronize(stream);
      CHECK(output.get() == expected);
      all_reduce.Execute(input.data(), input.data(), count, datatype, op, stream);
      HIP(hipStreamSynchronize(stream));
      CHECK(input.get() == expected);
      std::vector<T> found(count);
      HIP(hipMemcpy(found.data(), shared->localPtr, count * sizeof(T), hipMemcpyDeviceToHost));
      CHECK(found == expected);
    }
    self.memory.Free(shared);
  }
}

void every_type(const Rank& self) {
  hipStream_t stream{};
  HIP(hipStreamCreate(&stream));
  for (const Schedule schedule : {Schedule::AUTO, Schedule::CLASSIC}) {
    every_operation<float>(self, schedule, HIP_R_32F, stream);
    every_operation<double>(self, schedule, HIP_R_64F, stream);
    every_operation<int32_t>(self, schedule, HIP_R_32I, stream);
    every_operation<int64_t>(self, schedule, HIP_R_64I, stream);
    every_operation<int8_t>(self, schedule, HIP_R_8I, stream);
    every_operation<uint8_t>(self, schedule, HIP_R_8U, stream);
    every_operation<uint32_t>(self, schedule, HIP_R_32U, stream);
    every_operation<uint64_t>(self, schedule, HIP_R_64U, stream);
  }
  HIP(hipStreamDestroy(stream));
}

/// A NaN on one rank wins MIN and MAX; nothing is reduced where there is nothing.
void edges(const Rank& self) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Array<float> values(3);
  for (const ReduceOp op : {ReduceOp::MIN, ReduceOp::MAX}) {
    values.set({self.rank == 0 ? nan : 1.0f, 2.0f, static_cast<float>(self.rank)});
    self.all_reduce.Execute(values.data(), values.data(), 3, HIP_R_32F, op);
    const std::vector<float> found = values.get();
    CHECK(std::isnan(found[0]) && found[1] == 2.0f);
    CHECK(found[2] == (op == ReduceOp::MIN ? 0.0f : static_cast<float>(self.ranks - 1)));
  }
  self.all_reduce.Execute(nullptr, nullptr, 0, HIP_R_64I, ReduceOp::SUM);
}

/// Execute returns while its peers are away, and the stream is not done.
void asynchronous(const Rank& self) {
  if (self.ranks == 1) return;
  hipStream_t stream{};
  HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  Array<int32_t> values(100);
  values.set(std::vector<int32_t>(100, self.rank));
  self.bootstrap.Barrier();
  if (self.rank != 0) self.bootstrap.Barrier();
  for (int call = 0; call < 3; ++call) self.all_reduce.Execute(values.data(), values.data(), 100, HIP_R_32I, ReduceOp::MAX, stream);
  if (self.rank == 0) {
    CHECK(hipStreamQuery(stream) == hipErrorNotReady);
    self.bootstrap.Barrier();
  }
  HIP(hipStreamSynchronize(stream));
  HIP(hipStreamQuery(stream));
  CHECK(values.get() == std::vector<int32_t>(100, self.ranks - 1));
  HIP(hipStreamDestroy(stream));
}

/// Every rank sees every other's bytes; objects larger than the heap that the manager began with.
void memory(const Rank& self) {
  for (const size_t count : {size_t{5}, size_t{1} << 20}) {
    SymmMemObj* object = self.memory.Malloc(count * sizeof(int32_t));
    CHECK(object->size == count * sizeof(int32_t) && object->GetPeer(self.rank) == object->Get());
    std::vector<int32_t> values(count);
    HIP(hipMemcpy(values.data(), object->Get(), object->size, hipMemcpyDeviceToHost));
    CHECK(values == std::vector<int32_t>(count, 0));
    std::fill(values.begin(), values.end(), self.rank);
    upload(object->GetAs<int32_t>(), values.data(), object->size);
    self.bootstrap.Barrier();
    for (int peer = 0; peer < self.ranks; ++peer) {
      HIP(hipMemcpy(values.data(), object->GetPeerAs<int32_t>(peer), object->size, hipMemcpyDeviceToHost));
      CHECK(values == std::vector<int32_t>(count, peer));
    }
    self.bootstrap.Barrier();
    self.memory.Free(object);
    REFUSED(kInvalidArgument, "given back before", self.memory.Free(object));
  }
  SymmMemObj* stale = self.memory.Malloc(64);
  self.memory.Free(stale);
  SymmMemObj* fresh = self.memory.Malloc(64);
  CHECK(fresh != stale && stale->Get() == nullptr && stale->size == 0);
  REFUSED(kInvalidArgument, "given back before", self.memory.Free(stale));
  CHECK(fresh->size == 64);
  self.memory.Free(fresh);
  self.memory.Free(nullptr);
  self.memory.Deregister(nullptr);
  SymmMemObj foreign;
  REFUSED(kInvalidArgument, "none of the 0 objects", self.memory.Free(&foreign));
  REFUSED(kInvalidArgument, "none of the 0 objects", self.memory.Deregister(&foreign));
  SymmMemObj* object = self.memory.Malloc(64);
  REFUSED(kInvalidArgument, "came from Malloc", self.memory.Deregister(object));
  self.memory.Free(object);
  REFUSED(kInvalidArgument, "null", self.memory.Register(nullptr, 64));
}

/// Memory of the program's own: shared where the device can, refused on every rank where it cannot.
void registration(const Rank& self) {
  Array<int32_t> values(64);
  values.set(std::vector<int32_t>(64, 10 + self.rank));
  SymmMemObj* object = self.memory.Register(values.data(), 256);
  CHECK(object->Get() == values.data() && object->size == 256);
  SymmMemObj* inner = self.memory.Register(values.data() + 60, 12);
  int32_t* const mark = inner->GetPeerAs<int32_t>((self.rank + 1) % self.ranks) + 2;
  upload(mark, &self.rank, sizeof self.rank);
  for (int peer = 0; peer < self.ranks; ++peer) {
    int32_t found = 0;
    HIP(hipMemcpy(&found, object->GetPeer(peer), sizeof found, hipMemcpyDeviceToHost));
    CHECK(found == 10 + peer);
  }
  self.bootstrap.Barrier();
  const std::vector<int32_t> marked = values.get();
  CHECK(marked[61] == 10 + self.rank && marked[62] == (self.rank + self.ranks - 1) % self.ranks && marked[63] == 10 + self.rank);
  self.all_reduce.Execute(object->Get(), object->Get(), 16, HIP_R_32I, ReduceOp::SUM);
  CHECK(values.get()[15] == 10 * self.ranks + self.ranks * (self.ranks - 1) / 2);
  self.memory.Deregister(inner);
  REFUSED(kInvalidArgument, "came from Register", self.memory.Free(object));
  self.memory.Deregister(object);
  REFUSED(kInvalidArgument, "given back before", self.memory.Deregister(object));
#if P2P_ALLREDUCE_NUMBER(P2P_ALLREDUCE_DEVICE) == P2P_ALLREDUCE_ON_HOST
  // No device allocated this memory; if it is refused, the message contains its address.
  std::vector<int32_t> ordinary(64);
  char address[32];
  std::snprintf(address, sizeof address, "%p", static_cast<void*>(ordinary.data()));
  if (self.ranks > 1) REFUSED(kUnsupported, address, self.memory.Register(ordinary.data(), 256));
#endif
}

/// Other calls of the runtime that such programs make: events around a call, host memory, asynchronous fills.
void runtime(const Rank& self) {
  hipDeviceProp_t properties;
  HIP(hipGetDeviceProperties(&properties, 0));
  CHECK(properties.name[0] != 0);
  hipStream_t stream{};
  HIP(hipStreamCreate(&stream));
  hipEvent_t start{}, stop{};
  HIP(hipEventCreate(&start));
  HIP(hipEventCreateWithFlags(&stop, hipEventDefault));
  float elapsed_ms = -1;
  CHECK(hipEventElapsedTime(&elapsed_ms, start, stop) == hipErrorInvalidHandle);
  (void)hipGetLastError();
  const size_t count = 3000;
  int32_t* staging = nullptr;
  HIP(hipHostMalloc(&staging, count * sizeof(int32_t)));
  std::fill(staging, staging + count, self.rank);
  Array<int32_t> values(count);
  HIP(hipMemcpyAsync(values.data(), staging, count * sizeof(int32_t), hipMemcpyHostToDevice, stream));
  HIP(hipMemsetAsync(values.data() + 1, 0xFF, sizeof(int32_t), stream));
  HIP(hipEventRecord(start, stream));
  self.all_reduce.Execute(values.data(), values.data(), count, HIP_R_32I, ReduceOp::SUM, stream);
  HIP(hipEventRecord(stop, stream));
  HIP(hipStreamWaitEvent(nullptr, stop, 0));
  HIP(hipMemcpyAsync(staging, values.data(), count * sizeof(int32_t), hipMemcpyDeviceToHost, stream));
  HIP(hipEventSynchronize(stop));
  HIP(hipEventQuery(stop));
  HIP(hipStreamSynchronize(stream));
  HIP(hipEventElapsedTime(&elapsed_ms, start, stop));
  CHECK(elapsed_ms > 0);
  const int32_t sum = self.ranks * (self.ranks - 1) / 2;
  CHECK(staging[0] == sum && staging[1] == -self.ranks && staging[count - 1] == sum);
  HIP(hipHostFree(staging));
  HIP(hipEventDestroy(start));
  HIP(hipEventDestroy(stop));
  HIP(hipStreamDestroy(stream));
#if P2P_ALLREDUCE_NUMBER(P2P_ALLREDUCE_DEVICE) == P2P_ALLREDUCE_ON_HOST
  CHECK(hipFree(&elapsed_ms) == hipErrorInvalidValue);
  int can = 0;
  CHECK(hipDeviceCanAccessPeer(&can, 0, 1) == hipSuccess && can == 1);
  CHECK(hipDeviceEnablePeerAccess(-1, 0) == hipErrorInvalidDevice);
#endif
}

/// Bad calls are refused before anything is enqueued: the next one works.
void refusals(const Rank& self) {
  Array<float> values(8);
  const auto execute = [&](const void* send, void* receive, hipDataType datatype, ReduceOp op) {
    self.all_reduce.Execute(send, receive, 4, datatype, op);
  };
  float* data = values.data();
  REFUSED(kInvalidArgument, "null", execute(nullptr, data, HIP_R_32F, ReduceOp::SUM));
  REFUSED(kInvalidArgument, "null", execute(data, nullptr, HIP_R_32F, ReduceOp::SUM));
  REFUSED(kInvalidArgument, "aligned", execute(data, reinterpret_cast<char*>(data) + 2, HIP_R_32F, ReduceOp::SUM));
  REFUSED(kInvalidArgument, "8 bytes", execute(data, data + 2, HIP_R_32F, ReduceOp::SUM));
  REFUSED(kUnsupported, "is 4, but", execute(data, data, static_cast<hipDataType>(4), ReduceOp::SUM));
  REFUSED(kInvalidArgument, "is 9, but", execute(data, data, HIP_R_32F, static_cast<ReduceOp>(9)));
  values.set(std::vector<float>(8, 1.0f));
  execute(data, data + 4, HIP_R_32F, ReduceOp::SUM);
  CHECK(values.get()[4] == static_cast<float>(self.ranks) && values.get()[3] == 1.0f);
}

#if P2P_ALLREDUCE_NUMBER(P2P_ALLREDUCE_DEVICE) == P2P_ALLREDUCE_ON_HOST
/// Frees memory when the program ends, after everything that was created while it ran.
struct Last {
  void* memory = nullptr;
  ~Last() {
    if (hipDeviceSynchronize() != hipSuccess || hipHostFree(memory) != hipSuccess) std::abort();
  }
} last;
#endif

}  // namespace

int main(int count, char**) {
#ifdef MPI_VERSION
  // With an argument MPI is the program's, and stays so.
  if (count > 1) CHECK(MPI_Init(nullptr, nullptr) == MPI_SUCCESS);
#endif
  Meeting bootstrap;
  REFUSED(kInvalidArgument, "Initialize()", SymmMemManager manager(bootstrap));
  bootstrap.Initialize();
  bootstrap.Initialize();
  const int rank = bootstrap.GetRank();
  int devices = 0;
  HIP(hipGetDeviceCount(&devices));
  HIP(hipSetDevice(rank % devices));
  {
    symmetra::Config config;
    config.heap_bytes = 1 << 20;
    SymmMemManager manager(bootstrap, config);
    AllReduce all_reduce(bootstrap, manager);
    const Rank self{bootstrap, manager, all_reduce, rank, bootstrap.GetWorldSize()};
    every_type(self);
    edges(self);
    asynchronous(self);
    memory(self);
    registration(self);
    runtime(self);
    refusals(self);
  }
#if P2P_ALLREDUCE_NUMBER(P2P_ALLREDUCE_DEVICE) == P2P_ALLREDUCE_ON_HOST
  HIP(hipHostMalloc(&last.memory, 64));
  // Classes of different backends have different names.
  CHECK(std::string(typeid(SymmMemManager).name()).find("on_host") != std::string::npos);
#endif
  bootstrap.Finalize();
#ifdef MPI_VERSION
  int gone = 0;
  CHECK(MPI_Finalized(&gone) == MPI_SUCCESS && (gone == 0) == (count > 1));
  if (count > 1) CHECK(MPI_Finalize() == MPI_SUCCESS);
  REFUSED(kBootstrap, "finalised", bootstrap.Initialize());
#else
  CHECK(count == 1);
#endif
  std::printf("rank %d ok\n", rank);
  return 0;
}

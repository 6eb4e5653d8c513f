// Every function of symmetra/device/heap.cuh on NVIDIA GPUs: compiled, and read as machine code by tests/gpu/heap_sass.py.
#include "tests/kernels/heap_atomics.cuh"

namespace trial {

template <Order kOrder, Scope kScope>
__global__ void loads(const __grid_constant__ Heap heap, uint32_t* word, uint64_t* wide) {
  word[1] = device::load_atomic<kOrder, kScope>(heap, word);
  wide[1] = device::load_atomic<kOrder, kScope>(heap, wide);
}
template <Order kOrder, Scope kScope>
__global__ void stores(const __grid_constant__ Heap heap, uint32_t* word, uint64_t* wide) {
  device::store_atomic<kOrder, kScope>(heap, word, 7);
  device::store_atomic<kOrder, kScope>(heap, wide, 7);
}
template <Order kOrder, Scope kScope>
__global__ void fetches(const __grid_constant__ Heap heap, uint32_t* word, uint64_t* wide) {
  word[1] = device::fetch_max<kOrder, kScope>(heap, word, word[2]);
  wide[1] = device::exchange<kOrder, kScope>(heap, wide, wide[2]);
}
template <Order kOrder, Scope kScope>
__global__ void compares(const __grid_constant__ Heap heap, uint32_t* word, uint64_t* wide) {
  word[1] = device::compare_exchange<kOrder, kScope>(heap, word, word[2], 9);
  wide[1] = device::compare_exchange<kOrder, kScope>(heap, wide, wide[2], 9);
}
template <Order kOrder, Scope kScope>
__global__ void adds(const __grid_constant__ Heap heap, uint32_t* word, uint64_t* wide) {
  device::add<kOrder, kScope>(heap, word, word[2]);
  device::add<kOrder, kScope>(heap, wide, wide[2]);
}

#define SYMMETRA_TEST_SCOPES(kernel, order)                                                                          \
  template __global__ void kernel<Order::order, Scope::kBlock>(const __grid_constant__ Heap, uint32_t*, uint64_t*);  \
  template __global__ void kernel<Order::order, Scope::kDevice>(const __grid_constant__ Heap, uint32_t*, uint64_t*); \
  template __global__ void kernel<Order::order, Scope::kSystem>(const __grid_constant__ Heap, uint32_t*, uint64_t*);

SYMMETRA_TEST_SCOPES(loads, kRelaxed)
SYMMETRA_TEST_SCOPES(loads, kAcquire)
SYMMETRA_TEST_SCOPES(stores, kRelaxed)
SYMMETRA_TEST_SCOPES(stores, kRelease)
SYMMETRA_TEST_SCOPES(fetches, kRelaxed)
SYMMETRA_TEST_SCOPES(fetches, kAcquire)
SYMMETRA_TEST_SCOPES(fetches, kRelease)
SYMMETRA_TEST_SCOPES(fetches, kAcquireRelease)
SYMMETRA_TEST_SCOPES(compares, kRelaxed)
SYMMETRA_TEST_SCOPES(compares, kAcquire)
SYMMETRA_TEST_SCOPES(compares, kRelease)
SYMMETRA_TEST_SCOPES(compares, kAcquireRelease)
SYMMETRA_TEST_SCOPES(adds, kRelaxed)
SYMMETRA_TEST_SCOPES(adds, kRelease)

template <Scope kScope>
__global__ void fences(uint32_t* word) {
  word[0] = 1;
  device::fence<kScope>();
  word[1] = 2;
}
template __global__ void fences<Scope::kBlock>(uint32_t*);
template __global__ void fences<Scope::kDevice>(uint32_t*);
template __global__ void fences<Scope::kSystem>(uint32_t*);

__global__ void puts(const __grid_constant__ Heap heap, uint8_t* theirs, const uint8_t* from, uint64_t bytes) {
  device::put_signal(heap, theirs, from, device::Rank{1}, bytes, device::Channel{blockIdx.x});
}

template <class Who>
__global__ void moves(const __grid_constant__ MoveArgs args) {
  move_all<Who>(args);
}
template __global__ void moves<device::Thread>(const __grid_constant__ MoveArgs);
template __global__ void moves<device::Warp>(const __grid_constant__ MoveArgs);
template __global__ void moves<device::Block>(const __grid_constant__ MoveArgs);

template <class T>
__global__ void changes(const __grid_constant__ AtomicArgs<T> args) {
  change_all(args);
}
template __global__ void changes<uint32_t>(const __grid_constant__ AtomicArgs<uint32_t>);
template __global__ void changes<int32_t>(const __grid_constant__ AtomicArgs<int32_t>);
template __global__ void changes<uint64_t>(const __grid_constant__ AtomicArgs<uint64_t>);
template __global__ void changes<int64_t>(const __grid_constant__ AtomicArgs<int64_t>);

template <class T>
__global__ void values(const __grid_constant__ TypedArgs args) {
  store_and_load<T>(args);
}
template __global__ void values<uint8_t>(const __grid_constant__ TypedArgs);
template __global__ void values<uint16_t>(const __grid_constant__ TypedArgs);
template __global__ void values<uint32_t>(const __grid_constant__ TypedArgs);
template __global__ void values<uint64_t>(const __grid_constant__ TypedArgs);
template __global__ void values<uint4>(const __grid_constant__ TypedArgs);

__global__ void floats(const __grid_constant__ FloatArgs args) { add_floats(args); }
__global__ void messages(const __grid_constant__ LitmusArgs args) { pass_messages(args); }
__global__ void buffers(const __grid_constant__ LitmusArgs args) { buffer_stores(args); }

}  // namespace trial

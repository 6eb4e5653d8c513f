// Every function of symmetra/device/heap.cuh on AMD GPUs; `.ci/hip` compiles it and reads the assembly.
#include "tests/kernels/heap_atomics.cuh"

namespace trial {

/// One kernel for an order and a scope: a load, a store, a change and a sum, as far as they have that order.
template <Order kOrder, Scope kScope>
__attribute__((global)) void scoped(Heap heap, uint32_t* word) {
  if constexpr (kOrder == Order::kRelaxed || kOrder == Order::kAcquire) word[1] = device::load_atomic<kOrder, kScope>(heap, word);
  if constexpr (kOrder == Order::kRelaxed || kOrder == Order::kRelease) device::store_atomic<kOrder, kScope>(heap, word, 7);
  word[2] = device::fetch_max<kOrder, kScope>(heap, word, word[3]);
}

#define SYMMETRA_TEST_SCOPES(order)                                                            \
  template __attribute__((global)) void scoped<Order::order, Scope::kBlock>(Heap, uint32_t*);  \
  template __attribute__((global)) void scoped<Order::order, Scope::kDevice>(Heap, uint32_t*); \
  template __attribute__((global)) void scoped<Order::order, Scope::kSystem>(Heap, uint32_t*);

SYMMETRA_TEST_SCOPES(kRelaxed)
SYMMETRA_TEST_SCOPES(kAcquire)
SYMMETRA_TEST_SCOPES(kRelease)
SYMMETRA_TEST_SCOPES(kAcquireRelease)

template <Scope kScope>
__attribute__((global)) void fenced(uint32_t* word) {
  word[0] = 1;
  device::fence<kScope>();
  word[1] = word[2];
}
template __attribute__((global)) void fenced<Scope::kBlock>(uint32_t*);
template __attribute__((global)) void fenced<Scope::kDevice>(uint32_t*);
template __attribute__((global)) void fenced<Scope::kSystem>(uint32_t*);

__attribute__((global)) void puts(Heap heap, uint8_t* theirs, const uint8_t* from, uint64_t bytes) {
  device::put_signal(heap, theirs, from, device::Rank{1}, bytes, device::Channel{platform::block()});
}

__attribute__((global)) void moves_of_blocks(MoveArgs args) { move_all<device::Block>(args); }
__attribute__((global)) void moves_of_warps(MoveArgs args) { move_all<device::Warp>(args); }
__attribute__((global)) void moves_of_threads(MoveArgs args) { move_all<device::Thread>(args); }
__attribute__((global)) void changes_of_words(AtomicArgs<int32_t> args) { change_all(args); }
__attribute__((global)) void changes_of_double_words(AtomicArgs<uint64_t> args) { change_all(args); }
__attribute__((global)) void values_of_two_bytes(TypedArgs args) { store_and_load<uint16_t>(args); }
__attribute__((global)) void floats(FloatArgs args) { add_floats(args); }
__attribute__((global)) void messages(LitmusArgs args) { pass_messages(args); }
__attribute__((global)) void buffers(LitmusArgs args) { buffer_stores(args); }

}  // namespace trial

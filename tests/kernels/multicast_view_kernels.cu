// Every function of symmetra/device/multicast.cuh in a kernel of its own, as a program of a user compiles it. They are read by
// tests/gpu/multicast_sass.py and never run.
#include "symmetra/device/multicast.cuh"
#include "symmetra/device/signal.cuh"

using namespace symmetra::device;

extern "C" __global__ void view_sum_f32(Multicast<float> view, Packet<float>* out) { *out = view.load_sum(0); }
extern "C" __global__ void view_sum_f16(Multicast<uint16_t, Adds::kF16> view, Packet<uint16_t>* out) { *out = view.load_sum(0); }
extern "C" __global__ void view_sum_bf16(Multicast<uint16_t, Adds::kBF16> view, Packet<uint16_t>* out) { *out = view.load_sum(0); }
extern "C" __global__ void view_sum_e4m3(Multicast<uint8_t, Adds::kE4M3> view, Packet<uint8_t>* out) { *out = view.load_sum(0); }
extern "C" __global__ void view_sum_e5m2(Multicast<uint8_t, Adds::kE5M2> view, Packet<uint8_t>* out) { *out = view.load_sum(0); }
extern "C" __global__ void view_sum_u32(Multicast<uint32_t> view, Packet<uint32_t>* out) { *out = view.load_sum(0); }
extern "C" __global__ void view_sum_i64(Multicast<int64_t> view, Packet<int64_t>* out) { *out = view.load_sum(0); }
extern "C" __global__ void view_store(Multicast<uint16_t> view, const Packet<uint16_t>* in) { view.store(threadIdx.x, in[threadIdx.x]); }
extern "C" __global__ void view_add(Multicast<uint32_t> view) { view.add(threadIdx.x, 1); }
extern "C" __global__ void view_add_release(Multicast<uint32_t> view) { view.add<Order::kRelease>(threadIdx.x, 1); }
extern "C" __global__ void view_signal(Multicast<uint32_t> view, SignalPad pad) { view.signal(pad, Channel{0}); }

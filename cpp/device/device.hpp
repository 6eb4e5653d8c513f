// The classes that every backend implements, in host/, cuda/ and hip/. Rust and the C++ API use only these of a
// backend.
//
// Cold functions throw symmetra::Error. Hot functions are noexcept and return 0 or the native error code, which
// Device::describe explains. Any thread may use any object; an object keeps the resources of its device that it needs
// alive.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/args.hpp"
#include "symmetra/error.hpp"

namespace symmetra::device {

constexpr uint32_t kKindHost = 0;
constexpr uint32_t kKindCuda = 1;
constexpr uint32_t kKindHip = 2;

/// The properties of a device. Strings are separate functions.
struct Properties {
  uint32_t kind;
  int32_t ordinal;
  uint64_t memory_bytes;
  uint32_t multiprocessors;  ///< host: hardware threads
  uint32_t major;            ///< compute capability; host: 0
  uint32_t minor;
  uint32_t shared_fd;   ///< nonzero: allocate_shared works
  uint32_t legacy_ipc;  ///< nonzero: export_ipc works
  uint32_t warp;        ///< threads a warp; host: 1
  uint32_t clusters;    ///< nonzero: blocks may form clusters, which some kernels require
  uint8_t uuid[16];     ///< host: zero
  uint32_t multicast;   ///< nonzero: the device supports it; the build and the user must enable it
};

using Uuid = std::array<uint8_t, 16>;

/// The kinds of pointers, determined before a pointer is used.
constexpr uint32_t kPointerUnknown = 0;  ///< unknown to the runtime: pageable host memory
constexpr uint32_t kPointerPinned = 1;   ///< host memory the device can address
constexpr uint32_t kPointerManaged = 2;
constexpr uint32_t kPointerDevice = 3;  ///< from the plain allocator: can be exported by legacy IPC
constexpr uint32_t kPointerVmm = 4;     ///< mapped by address-range calls (expandable segments)
constexpr uint32_t kPointerPool = 5;    ///< from a stream-ordered pool
constexpr uint32_t kPointerFile = 6;    ///< from the plain allocator: can be exported by export_file

struct PointerInfo {
  uint32_t kind;   ///< kPointer*
  int32_t device;  ///< ordinal of the owner, -1 for host memory
  uint64_t base;   ///< start of the allocation; 0 when unknown
  uint64_t bytes;  ///< size of the allocation; 0 when unknown
};

/// A legacy IPC export of an allocation's base, never of an inner pointer.
struct IpcHandle {
  uint8_t bytes[64];
};

/// An allocation inside a file: the host device's counterpart of an IPC handle.
struct FilePart {
  uint64_t offset;  ///< of the allocation's base in the file
  int32_t fd;
  uint32_t padding;
};

/// Keeps a graph's objects alive while the graph or a launch of it lives. `release` is called once, on any thread; it must not call the
/// device.
struct Keepalive {
  void* data;
  void (*release)(void* data);
};

/// A function that the host device runs as a kernel: each device thread calls `entry` with a copy of `bytes` bytes at
/// `args`.
struct HostKernel {
  void (*entry)(const void* args);
  const void* args;
  uint64_t bytes;
};

/// The most bytes of arguments of a HostKernel: 1 KiB of a caller's, and those that a launch from C++ adds
/// (cpp/core/heap.cc).
constexpr uint64_t kMostHostKernelBytes = 1056;

static_assert(sizeof(Properties) == 64, "mirrored in src/sys/device.rs");
static_assert(sizeof(PointerInfo) == 24, "mirrored in src/sys/device.rs");
static_assert(sizeof(IpcHandle) == 64, "mirrored in src/sys/device.rs");
static_assert(sizeof(FilePart) == 16, "mirrored in src/sys/device.rs");
static_assert(sizeof(Keepalive) == 16, "mirrored in src/sys/device.rs");
static_assert(sizeof(HostKernel) == 24, "mirrored in src/sys/device.rs");

class Stream;
class Event;
class Graph;

/// Memory, or a mapping of memory. The destructor frees or unmaps it, and waits for the device as the runtime's own free does.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual uint8_t* address() const noexcept = 0;
  virtual size_t bytes() const noexcept = 0;
  /// A new file descriptor for memory from allocate_shared, owned by the caller; throws for other memory.
  virtual int32_t export_fd() const = 0;
};

/// A multicast object: one address for the shared memory of several ranks, each on its own device. One rank creates the
/// object; all ranks, including that rank, import the exported descriptor. Then every rank calls add, bind and map once
/// each, in this order, and calls bind only after every rank has called add. The destructor reverts this rank's steps
/// in reverse order; the bound memory outlives the object. One thread at a time calls functions that are not const.
class MulticastObject {
 public:
  virtual ~MulticastObject() = default;
  /// A new file descriptor, owned by the caller.
  virtual int32_t export_fd() const = 0;
  /// Adds the device that imported the object.
  virtual void add() = 0;
  /// Binds memory of that device from allocate_shared, for the lifetime of the object.
  virtual void bind(const Memory& memory) = 0;
  virtual void map() = 0;
  /// The address after map, else null. Only for multicast accesses of kernels; on the host device other accesses fault.
  virtual uint8_t* address() const noexcept = 0;
};

/// Memory of another rank that is mapped piece by piece, in order, into one range of addresses. The destructor unmaps all pieces and waits
/// for the device. One thread at a time calls functions that are not const.
class Assembly {
 public:
  virtual ~Assembly() = default;
  /// Maps the next piece, which another process exported by export_piece. Takes ownership of `fd`, also if it throws.
  virtual void add(int32_t fd, size_t bytes) = 0;
  /// Maps the next piece, which is mapped at `base` in this process too.
  virtual void alias(const uint8_t* base, size_t bytes) = 0;
  virtual uint8_t* address() const noexcept = 0;
};

/// While an object lives, its device is current on the thread that created the object, and the thread may allocate,
/// free and load kernels although a stream is being captured. Destroyed on that thread.
class Scope {
 public:
  virtual ~Scope() = default;
};

/// One rank's handle of a device.
class Device {
 public:
  virtual ~Device() = default;
  virtual Properties properties() const noexcept = 0;
  virtual const std::string& name() const noexcept = 0;
  /// Versions of driver and runtime, as text.
  virtual const std::string& versions() const noexcept = 0;
  /// The text of a native code from a hot function; a static string.
  virtual const char* describe(int32_t native_code) const noexcept = 0;

  /// Allocates device memory for this rank only. `bytes` must not be 0. Contents undefined.
  virtual std::unique_ptr<Memory> allocate(size_t bytes) const = 0;
  /// Makes host memory of the caller (page-aligned, whole pages, possibly shared with other processes) addressable by
  /// the device at the same address, until the result is destroyed.
  virtual std::unique_ptr<Memory> pin(uint8_t* address, size_t bytes) const = 0;
  /// Allocates zeroed device memory that other ranks can import; `bytes` is a multiple of shared_granularity().
  virtual std::unique_ptr<Memory> allocate_shared(size_t bytes) const = 0;
  virtual size_t shared_granularity() const = 0;
  /// Gives the other devices of this process access to `memory`, at the same address. `memory` is from allocate_shared of this
  /// device. Devices that cannot address this device get no access. A device without memory that is mapped by address ranges throws
  /// kUnsupported.
  virtual void open_to_peers(const Memory& memory) const;
  /// Maps a peer's allocate_shared memory. Takes ownership of `fd`, also if it throws.
  virtual std::unique_ptr<Memory> import_shared(int32_t fd, size_t bytes) const = 0;
  /// Maps allocate_shared memory of this process, which must outlive the result's use.
  virtual std::unique_ptr<Memory> alias_shared(const Memory& memory) const = 0;

  virtual PointerInfo classify(const uint8_t* pointer) const = 0;
  /// Exports the allocation at `base`, which has kind kPointerDevice.
  virtual IpcHandle export_ipc(const uint8_t* base) const = 0;
  /// Opens a handle of another process. The mapping starts at the exported base.
  virtual std::unique_ptr<Memory> import_ipc(const IpcHandle& handle, size_t bytes) const = 0;
  /// The place of the allocation at `base`, which has kind kPointerFile, with a new descriptor owned by the caller. A device that has IPC
  /// handles throws kUnsupported from this and from import_file.
  virtual FilePart export_file(const uint8_t* base) const;
  /// Maps an allocation of another process. Takes ownership of `part.fd`, also if it throws any other error.
  virtual std::unique_ptr<Memory> import_file(const FilePart& part, size_t bytes) const;
  /// The piece of physical memory at `pointer`, which has kind kPointerVmm. A device without such memory throws kUnsupported from this and
  /// from the next two functions.
  virtual PointerInfo piece(const uint8_t* pointer) const;
  /// A new descriptor of the piece at `base`, owned by the caller. Throws if the program made the piece for this process alone.
  virtual int32_t export_piece(const uint8_t* base) const;
  /// An assembly with room for `bytes` bytes.
  virtual std::unique_ptr<Assembly> assemble(size_t bytes) const;
  /// Lets this device address plain memory of device `ordinal` in this process.
  virtual void enable_peer(int32_t ordinal) const = 0;
  /// Whether this device reports that it can address memory of device `ordinal`.
  virtual bool can_access(int32_t ordinal) const = 0;
  /// The number of the device with this UUID in this process; -1 if the device is not visible. Opens no device.
  virtual int32_t ordinal_of(const Uuid& uuid) const = 0;
  /// Whether kernels of this device change words atomically in memory of the device with this UUID. False for a device
  /// that is not visible to this process.
  virtual bool native_atomics(const Uuid& uuid) const = 0;

  /// Sizes of multicast objects and of the memory that they bind are multiples of this. A device, a driver or a build
  /// without multicast throws kUnsupported from this and from the next two functions, with the reason.
  virtual size_t multicast_granularity(uint32_t devices) const;
  /// A multicast object for the memory of `devices` devices, `bytes` on each.
  virtual std::unique_ptr<MulticastObject> create_multicast(size_t bytes, uint32_t devices) const;
  /// Takes ownership of `fd`, also if it throws any other error.
  virtual std::unique_ptr<MulticastObject> import_multicast(int32_t fd, size_t bytes) const;

  /// `urgent`: the next free multiprocessor goes to this stream's kernels.
  virtual std::unique_ptr<Stream> create_stream(bool urgent = false) const = 0;
  /// Borrows a caller's stream (cudaStream_t, hipStream_t; on the host the result of raw() of a stream), which must
  /// outlive the result.
  virtual std::unique_ptr<Stream> borrow_stream(uint64_t raw) const = 0;
  /// Without times an event is cheaper to record, and elapsed_us throws.
  virtual std::unique_ptr<Event> create_event(bool timed = true) const = 0;
  /// Leaves the device current on the calling thread, for libraries that use the current device.
  virtual void make_current() const = 0;
  /// For calls of libraries that work on the current device and load kernels at their first use.
  virtual std::unique_ptr<Scope> enter() const { return std::make_unique<Scope>(); }
  /// Blocks until all work of this process on the device is done.
  virtual void synchronize() const = 0;
};

inline FilePart Device::export_file(const uint8_t*) const {
  throw Error(ErrorKind::kUnsupported, "export_file: plain memory of this device is not in a file");
}
inline std::unique_ptr<Memory> Device::import_file(const FilePart&, size_t) const {
  throw Error(ErrorKind::kUnsupported, "import_file: plain memory of this device is not in a file");
}

inline void Device::open_to_peers(const Memory&) const {
  throw Error(ErrorKind::kUnsupported, "open_to_peers: this kind of device has no memory that is mapped by address ranges");
}

inline PointerInfo Device::piece(const uint8_t*) const {
  throw Error(ErrorKind::kUnsupported, "piece: this kind of device shares no memory that is mapped by address ranges");
}
inline int32_t Device::export_piece(const uint8_t*) const {
  throw Error(ErrorKind::kUnsupported, "export_piece: this kind of device shares no memory that is mapped by address ranges");
}
inline std::unique_ptr<Assembly> Device::assemble(size_t) const {
  throw Error(ErrorKind::kUnsupported, "assemble: this kind of device shares no memory that is mapped by address ranges");
}

inline size_t Device::multicast_granularity(uint32_t) const {
  throw Error(ErrorKind::kUnsupported, "this kind of device has no multicast");
}
inline std::unique_ptr<MulticastObject> Device::create_multicast(size_t, uint32_t) const {
  throw Error(ErrorKind::kUnsupported, "create_multicast: this kind of device has no multicast");
}
inline std::unique_ptr<MulticastObject> Device::import_multicast(int32_t, size_t) const {
  throw Error(ErrorKind::kUnsupported, "import_multicast: this kind of device has no multicast");
}

/// A point in a stream's work, with a timestamp.
class Event {
 public:
  virtual ~Event() = default;
  /// Whether the last recorded point has been reached; true if nothing was recorded.
  virtual bool done() const = 0;
  virtual void synchronize() const = 0;
  /// Microseconds from `start` to this event. Both must be done.
  virtual double elapsed_us(const Event& start) const = 0;
};

/// Captured work, ready to launch any number of times. A launch in flight outlives the object.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual int32_t launch(const Stream& stream) const noexcept = 0;
};

/// A capture in progress on a stream, which must outlive the object. Destroying it unfinished ends the capture and drops the recorded work.
class Capture {
 public:
  virtual ~Capture() = default;
  /// Ends the capture. Attaches `keepalive` before instantiating the graph, and releases it if this throws. Call once.
  virtual std::unique_ptr<Graph> finish(Keepalive keepalive) = 0;
};

/// The operations of one order in a capture: a launch of the capture's graph runs them one after another, also operations of
/// different streams. Used by one thread at a time, and only while the capture lasts.
class Chain {
 public:
  virtual ~Chain() = default;
  /// Makes the next work of `stream`, which the capture records, wait for the last operation.
  virtual void follow(const Stream& stream) = 0;
  /// The last work of `stream`, which the capture records, is now the end of the last operation. A launch records the chain's event
  /// there, and no longer after the previous operation.
  virtual void extend(const Stream& stream) = 0;
};

/// An ordered queue of work. Every function returns at once, except synchronize, done and capture.
class Stream {
 public:
  virtual ~Stream() = default;
  /// The runtime's handle as an integer; on the host a number that is unique among all streams of the process,
  /// including destroyed ones.
  virtual uint64_t raw() const noexcept = 0;
  /// A number that no other stream of the process has or had; 0 if the runtime gives streams no numbers.
  virtual uint64_t id() const noexcept = 0;
  virtual bool done() const = 0;
  virtual void synchronize() const = 0;

  virtual int32_t copy(uint8_t* to, const uint8_t* from, size_t bytes) const noexcept = 0;
  virtual int32_t fill(uint8_t* to, uint8_t value, size_t bytes) const noexcept = 0;
  /// Writes a word of any rank's memory after earlier work of the stream is done, with release order: a thread that
  /// acquires the value also reads the results of that work. Needs no multiprocessor on a GPU.
  virtual int32_t store(uint32_t* word, uint32_t value) const noexcept = 0;
  virtual int32_t record(const Event& event) const noexcept = 0;
  virtual int32_t wait(const Event& event) const noexcept = 0;
  /// Launches the kernel that `args`, the argument block of `kind`, describes. Copies the block.
  virtual int32_t launch(kernels::Kind kind, const uint8_t* args, const kernels::Geometry& geometry) const noexcept = 0;
  template <typename Args>
  int32_t launch(const Args& args, const kernels::Geometry& geometry) const noexcept {
    return launch(kind_of(args), reinterpret_cast<const uint8_t*>(&args), geometry);
  }

  /// Runs a function of this process in the stream's order, on the host device. Streams of other devices return kNotOnGpus.
  virtual int32_t launch_host(const HostKernel& kernel, const kernels::Geometry& geometry) const noexcept;
  static constexpr int32_t kNotOnGpus = 1;  ///< the code of CUDA and HIP for an invalid value

  /// Lets the calling thread run the work that it enqueues from now on, in its waits for the stream, in place of the stream's
  /// thread, until hand_back(). Returns false, and changes nothing, if the stream has work, or if no thread of the process
  /// runs its work. Another use of the stream by another thread ends this.
  virtual bool take_over() const noexcept { return false; }
  /// Ends take_over() of the calling thread.
  virtual void hand_back() const noexcept {}

  /// Whether the stream is being captured, by the library or its owner.
  virtual bool capturing() const = 0;
  /// Records later work of this stream instead of running it. Throws if capturing() already.
  virtual std::unique_ptr<Capture> begin_capture() const = 0;
  /// The number of the capture that records the stream, unique in the process; 0 if no capture does. Throws if the capture
  /// is invalid.
  virtual uint64_t capture_id() const = 0;
  /// Begins a chain in the capture that records the stream. With an `event`, which must outlive the graph and its launches, a
  /// launch waits before the next work of the stream for the last point that was recorded before the launch, and records the
  /// event itself: see Chain::extend. The captured graph, and what is made from it, hold `keepalive`, if the runtime lets them.
  virtual std::unique_ptr<Chain> begin_chain(const Event* event, Keepalive keepalive) const = 0;
};

inline int32_t Stream::launch_host(const HostKernel&, const kernels::Geometry&) const noexcept { return kNotOnGpus; }

/// The number of devices of a kind on this machine; 0 without the backend or a driver.
uint32_t count(uint32_t kind) noexcept;
/// Opens a device. For the host device any ordinal is valid; equal ordinals share nothing.
std::shared_ptr<Device> open(uint32_t kind, int32_t ordinal);
/// The ordinal of the GPU that is current on the calling thread: 0 on a thread that has chosen none, as in the runtimes.
int32_t current(uint32_t kind);

}  // namespace symmetra::device

// What every backend provides. Rooms with one floor plan (host/, cuda/, hip/) implement
// these classes; Rust and the C++ API see nothing else of a backend.
//
// Cold functions throw symmetra::Error. Hot ones are noexcept and return 0 or the
// native error code, which Device::describe turns into words. All objects may be
// used from any thread; an object keeps what it needs of its device alive.
#pragma once

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

/// What a device is. Strings are separate functions.
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
  uint8_t uuid[16];     ///< host: zero
};

/// What a pointer is, read before anything is done with it.
constexpr uint32_t kPointerUnknown = 0;  ///< not known to the runtime: pageable host memory
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

/// A legacy IPC export: of the allocation's base, never of an inner pointer.
struct IpcHandle {
  uint8_t bytes[64];
};

/// An allocation that lies in a file: what the host device has in place of IPC handles.
struct FilePart {
  uint64_t offset;  ///< of the allocation's base in the file
  int32_t fd;
  uint32_t padding;
};

/// Keeps what a graph uses alive while the graph or a launch of it lives.
/// `release` is called once, from any thread; it may not call the device.
struct Keepalive {
  void* data;
  void (*release)(void* data);
};

static_assert(sizeof(Properties) == 56, "mirrored in src/sys/device.rs");
static_assert(sizeof(PointerInfo) == 24, "mirrored in src/sys/device.rs");
static_assert(sizeof(IpcHandle) == 64, "mirrored in src/sys/device.rs");
static_assert(sizeof(FilePart) == 16, "mirrored in src/sys/device.rs");
static_assert(sizeof(Keepalive) == 16, "mirrored in src/sys/device.rs");

class Stream;
class Event;
class Graph;

/// Memory or a mapping of memory; freed or unmapped by the destructor, which waits
/// for the device as its runtime's own free does.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual uint8_t* address() const noexcept = 0;
  virtual size_t bytes() const noexcept = 0;
  /// A new file descriptor for memory from allocate_shared, owned by the caller; throws for other memory.
  virtual int32_t export_fd() const = 0;
};

/// One device, as one rank uses it.
class Device {
 public:
  virtual ~Device() = default;
  virtual Properties properties() const noexcept = 0;
  virtual const std::string& name() const noexcept = 0;
  /// Versions of driver and runtime, for people.
  virtual const std::string& versions() const noexcept = 0;
  /// The words for a native code that a hot function returned; a static string.
  virtual const char* describe(int32_t native_code) const noexcept = 0;

  /// Device memory of this rank alone. `bytes` may not be 0. Contents undefined.
  virtual std::unique_ptr<Memory> allocate(size_t bytes) const = 0;
  /// Makes host memory of the caller's (page-aligned, whole pages, may be shared with other
  /// processes) addressable by the device at the same address until the result is destroyed.
  virtual std::unique_ptr<Memory> pin(uint8_t* address, size_t bytes) const = 0;
  /// Device memory that other ranks can import; `bytes` is a multiple of shared_granularity(). Zeroed.
  virtual std::unique_ptr<Memory> allocate_shared(size_t bytes) const = 0;
  virtual size_t shared_granularity() const = 0;
  /// Maps a peer's allocate_shared memory; takes ownership of `fd`, also when it throws.
  virtual std::unique_ptr<Memory> import_shared(int32_t fd, size_t bytes) const = 0;
  /// Maps allocate_shared memory of this process, which must outlive the result's use.
  virtual std::unique_ptr<Memory> alias_shared(const Memory& memory) const = 0;

  virtual PointerInfo classify(const uint8_t* pointer) const = 0;
  /// Exports the allocation at `base`, which classify said is kPointerDevice.
  virtual IpcHandle export_ipc(const uint8_t* base) const = 0;
  /// Opens a handle of another process; the mapping starts at the exported base.
  virtual std::unique_ptr<Memory> import_ipc(const IpcHandle& handle, size_t bytes) const = 0;
  /// The place of the allocation at `base`, which classify said is kPointerFile, with a new descriptor that is the
  /// caller's. A device that has IPC handles throws kUnsupported from both of these.
  virtual FilePart export_file(const uint8_t* base) const;
  /// Maps the allocation of another process; takes ownership of `part.fd`, also when it throws anything else.
  virtual std::unique_ptr<Memory> import_file(const FilePart& part, size_t bytes) const;
  /// Lets this device address plain memory of device `ordinal` of this process.
  virtual void enable_peer(int32_t ordinal) const = 0;
  /// Whether this device reports that it can address memory of device `ordinal`.
  virtual bool can_access(int32_t ordinal) const = 0;

  /// `urgent`: where kernels compete for multiprocessors, those of this stream get the next free one.
  virtual std::unique_ptr<Stream> create_stream(bool urgent = false) const = 0;
  /// A stream of the caller's (cudaStream_t, hipStream_t), which must outlive the result.
  virtual std::unique_ptr<Stream> borrow_stream(uint64_t raw) const = 0;
  virtual std::unique_ptr<Event> create_event() const = 0;
  /// Leaves the device as the calling thread's current one, for libraries that work on that.
  virtual void make_current() const = 0;
  /// Blocks until all work of the device (of this process) is done.
  virtual void synchronize() const = 0;
};

inline FilePart Device::export_file(const uint8_t*) const {
  throw Error(ErrorKind::kUnsupported, "export_file: plain memory of this device lies in no file");
}
inline std::unique_ptr<Memory> Device::import_file(const FilePart&, size_t) const {
  throw Error(ErrorKind::kUnsupported, "import_file: plain memory of this device lies in no file");
}

/// A point in a stream's work. Carries a timestamp.
class Event {
 public:
  virtual ~Event() = default;
  /// Whether the last recorded point has been reached; true when nothing was recorded.
  virtual bool done() const = 0;
  virtual void synchronize() const = 0;
  /// Microseconds from `start` to this; both must be done.
  virtual double elapsed_us(const Event& start) const = 0;
};

/// Captured work, ready to launch any number of times. A launch in flight outlives the object.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual int32_t launch(const Stream& stream) const noexcept = 0;
};

/// A capture in progress on a stream, which must outlive it. Destroyed unfinished, it
/// ends the capture and drops what was recorded.
class Capture {
 public:
  virtual ~Capture() = default;
  /// Ends the capture. `keepalive` is attached before the graph is instantiated; where
  /// this throws it is released. Call once.
  virtual std::unique_ptr<Graph> finish(Keepalive keepalive) = 0;
};

/// Work in order. Everything but synchronize, done and capture returns at once.
class Stream {
 public:
  virtual ~Stream() = default;
  /// The runtime's handle as an integer; 0 on the host.
  virtual uint64_t raw() const noexcept = 0;
  virtual bool done() const = 0;
  virtual void synchronize() const = 0;

  virtual int32_t copy(uint8_t* to, const uint8_t* from, size_t bytes) const noexcept = 0;
  virtual int32_t fill(uint8_t* to, uint8_t value, size_t bytes) const noexcept = 0;
  virtual int32_t record(const Event& event) const noexcept = 0;
  virtual int32_t wait(const Event& event) const noexcept = 0;
  /// Launches the kernel that `args`, the argument block of `kind`, ask for. The block is copied.
  virtual int32_t launch(kernels::Kind kind, const uint8_t* args, const kernels::Geometry& geometry) const noexcept = 0;
  template <typename Args>
  int32_t launch(const Args& args, const kernels::Geometry& geometry) const noexcept {
    return launch(kind_of(args), reinterpret_cast<const uint8_t*>(&args), geometry);
  }

  /// Whether the stream is being captured, by anybody.
  virtual bool capturing() const = 0;
  /// From here on work on this stream is recorded instead of run. Throws when capturing() already.
  virtual std::unique_ptr<Capture> begin_capture() const = 0;
};

/// Devices of a kind on this machine; 0 where the backend is not built or has no driver.
uint32_t count(uint32_t kind) noexcept;
/// Opens one. The host device's ordinal is free; equal ordinals share nothing.
std::shared_ptr<Device> open(uint32_t kind, int32_t ordinal);

}  // namespace symmetra::device

// A process that offers device memory to this process.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/gpu/bench.hpp"

namespace symmetra::test {

/// The offer of an exporting process, sent together with the descriptor of its shared memory.
struct Offer {
  uint64_t shared_bytes;
  uint64_t large_bytes;
  uint64_t small_bytes;
  IpcHandle large;
  IpcHandle small[2];
};

inline bool send_offer(int socket, const Offer& offer, int fd) {
  iovec part{const_cast<Offer*>(&offer), sizeof(offer)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(offer));
}

/// Returns the descriptor, or -1 if none came.
inline int receive_offer(int socket, Offer* offer) {
  iovec part{offer, sizeof(*offer)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof(*offer))) return -1;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr) return -1;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  return fd;
}

inline bool send_byte(int socket) { return send(socket, "x", 1, MSG_NOSIGNAL) == 1; }
inline bool receive_byte(int socket) {
  char byte = 0;
  return recv(socket, &byte, 1, 0) == 1;
}

/// The other process: allocates on the last device, offers the memory, checks its contents, and stays until its peer closes
/// the socket.
inline void export_memory(int socket) {
  const Bench bench(static_cast<int32_t>(cuda::count()) - 1);
  const Device& device = *bench.device;
  Offer offer{};
  offer.shared_bytes = 2 * device.shared_granularity();
  offer.large_bytes = 4 << 20;
  offer.small_bytes = 1024;
  const auto shared = device.allocate_shared(offer.shared_bytes);
  CHECK(bench.holds(shared->address(), 0, kHostBytes));
  CHECK(bench.holds(shared->address() + offer.shared_bytes - kHostBytes, 0, kHostBytes));
  const auto large = device.allocate(offer.large_bytes);
  const std::unique_ptr<Memory> small[2] = {device.allocate(offer.small_bytes), device.allocate(offer.small_bytes)};
  CHECK(bench.fill(shared->address(), 0x5a, offer.shared_bytes));
  CHECK(bench.fill(large->address(), 0x33, offer.large_bytes));
  CHECK(bench.fill(small[0]->address(), 0x11, offer.small_bytes));
  CHECK(bench.fill(small[1]->address(), 0x22, offer.small_bytes));
  offer.large = device.export_ipc(large->address());
  offer.small[0] = device.export_ipc(small[0]->address());
  offer.small[1] = device.export_ipc(small[1]->address());
  // Pitfall 15: the exporting process cannot open its own handle; that must be an error.
  CHECK(throws(ErrorKind::kDevice, [&] { device.import_ipc(offer.large, offer.large_bytes); }));
  const int fd = shared->export_fd();
  CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(send_offer(socket, offer, fd));
  close(fd);
  CHECK(receive_byte(socket));
  CHECK(bench.holds(shared->address(), 0xa5, kHostBytes));
  CHECK(bench.holds(large->address(), 0x44, kHostBytes));
  CHECK(send_byte(socket));
  receive_byte(socket);
}

/// A forked process and our end of the socket to it. The destructor ends a process that was not waited for.
class Process {
 public:
  Process(pid_t pid, int socket) : socket(socket), pid_(pid) {}
  ~Process() {
    if (pid_ > 0) wait();
    close(socket);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void kill() const { ::kill(pid_, SIGKILL); }
  /// Ends the conversation, even if other processes hold the socket, and returns the exit status.
  int wait() {
    shutdown(socket, SHUT_RDWR);
    int status = -1;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

  const int socket;

 private:
  pid_t pid_;
};

/// Forks before this process has touched CUDA, which does not survive a fork.
inline Process start_exporter() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    try {
      export_memory(ends[1]);
    } catch (const std::exception& error) {
      std::printf("  exporter: %s\n", error.what());
      failures += 1;
    }
    std::fflush(stdout);
    _exit(failures == 0 ? 0 : 1);
  }
  close(ends[1]);
  return Process(pid, ends[0]);
}

}  // namespace symmetra::test

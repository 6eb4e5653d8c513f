// Threads that belong to the library, not to the caller.
#pragma once

#include <functional>
#include <thread>

namespace symmetra::device::host {

/// Starts a thread that takes none of the process's asynchronous signals: those are the
/// caller's. `name` has at most 15 characters. Throws Error when the system refuses.
std::thread start_thread(const char* name, std::function<void()> body);

}  // namespace symmetra::device::host

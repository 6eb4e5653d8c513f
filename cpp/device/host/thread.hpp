// Threads of the library.
#pragma once

#include <functional>
#include <thread>

namespace symmetra::device::host {

/// Starts a thread that receives none of the process's asynchronous signals, which belong to the program. `name` has at
/// most 15 characters. Throws Error if the system refuses.
std::thread start_thread(const char* name, std::function<void()> body);

}  // namespace symmetra::device::host

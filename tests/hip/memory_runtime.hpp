// The state of the runtime over host memory that a test can read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace symmetra::test {

struct Ledger {
  int live;            ///< allocations and mappings
  int peers_enabled;   ///< calls
  unsigned int flags;  ///< of the last hipExtMallocWithFlags
  int modules;         ///< loads
  bool bundled;        ///< the code object loaded is clang's bundle
  struct {
    int waits;    ///< nodes that wait for an event
    int records;  ///< nodes that record an event
    int before;   ///< edges to the last of these
    int added;    ///< nodes added to those for which a stream waits
  } captured;
  struct {
    const char* kernel;  ///< symbol
    int device;
    unsigned int blocks, threads, shared_bytes;
    void* stream;
    uint8_t args[128];  ///< the first bytes of the argument block
  } launch;             ///< the last
};

}  // namespace symmetra::test

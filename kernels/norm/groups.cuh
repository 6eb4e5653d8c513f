// Groups of a row's packets, each with the largest absolute value of its elements. A group may have fewer or more
// packets than the threads process at once, so a row is cut into spans of whole groups.
#pragma once
#include "kernels/norm/rows.cuh"

namespace symmetra::kernels {

/// The groups of `packets` packets of a row. While threads process a span, `places` words (a power of two) hold the
/// largest absolute value of each packet or, if a group has more packets, of every places-th packet.
class Groups {
 public:
  /// `group`: packets in a group; 0: the row has no groups, and is one span.
  SYMMETRA_DEVICE Groups(uint32_t group, uint32_t places, uint32_t packets)
      : group_(group),
        places_(places),
        packets_(packets),
        span_(group == 0       ? packets
              : group > places ? group
                               : places / group * group) {}

  SYMMETRA_DEVICE bool any() const { return group_ != 0; }
  SYMMETRA_DEVICE uint32_t packets() const { return packets_; }
  /// Packets from one span to the next.
  SYMMETRA_DEVICE uint32_t span() const { return span_; }
  /// Packets of the span that begins at packet `start`.
  SYMMETRA_DEVICE uint32_t count(uint32_t start) const { return packets_ - start < span_ ? packets_ - start : span_; }

  /// Stores the largest absolute value of the packet at `offset` in a span. One thread stores the packets of a place,
  /// in ascending order; all threads sync before they call `largest`.
  SYMMETRA_DEVICE void note(float* noted, uint32_t offset, float largest) const {
    float& place = noted[offset % places_];
    place = offset < places_ ? largest : larger(place, largest);
  }
  /// The largest absolute value in the group of the packet at `offset`, in a span of `count` packets.
  SYMMETRA_DEVICE float largest(const float* noted, uint32_t offset, uint32_t count) const {
    const uint32_t first = group_ > places_ ? 0 : offset / group_ * group_;
    const uint32_t held = count < places_ ? count : places_, end = held - first < group_ ? held : first + group_;
    float most = 0.0f;
    for (uint32_t place = first; place < end; ++place) most = larger(most, noted[place]);
    return most;
  }

 private:
  uint32_t group_, places_, packets_, span_;
};

}  // namespace symmetra::kernels

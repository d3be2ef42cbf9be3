// Seal: what proves that a record has arrived as it was sent. A channel has one for each direction, so that a seal with
// keys has a key for each.
//
// kCheck has CRC32C: it detects every change of up to 32 consecutive bits, and all but one in 2^32 of other changes. It
// has no key, so it does not detect an attacker, who can compute it too. kNone proves nothing: for tests, which show
// what the check detects, and for links that check by themselves.
//
// Called by RecordChannel, which holds two; SocketMesh and join_world() pass a level on; one thread (the holder of the
// progress lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace ciranda {

enum class WireLevel : std::uint8_t { kCheck, kNone };

// "none" is kNone, every other name kCheck.
WireLevel wire_level_named(std::string_view name);

class Seal {
 public:
  using Tag = std::uint32_t;
  using Parts = std::span<const std::span<const std::byte>>;

  virtual ~Seal() = default;

  // The tag of the concatenation of parts. `sequence`: the number of records before this one in the same direction of
  // the same connection; a record that is repeated, left out or moved to another place has another tag there.
  virtual Tag tag_of(std::uint64_t sequence, Parts parts) = 0;
};

std::unique_ptr<Seal> make_seal(WireLevel level);

}  // namespace ciranda

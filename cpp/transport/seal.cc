#include "transport/seal.hpp"

#include <algorithm>

#include "base/crc32c.hpp"

namespace ciranda {
namespace {

class ChecksumSeal final : public Seal {
 public:
  Tag tag_of(std::uint64_t sequence, Parts parts) override {
    Tag sum = crc32c(std::as_bytes(std::span(&sequence, 1)));
    for (const std::span<const std::byte> part : parts) sum = crc32c(part, sum);
    return sum;
  }
};

class NoSeal final : public Seal {
 public:
  Tag tag_of(std::uint64_t /*sequence*/, Parts /*parts*/) override { return 0; }
};

}  // namespace

WireLevel wire_level_named(std::string_view name) { return name == "none" ? WireLevel::kNone : WireLevel::kCheck; }

std::unique_ptr<Seal> make_seal(WireLevel level) {
  if (level == WireLevel::kNone) return std::make_unique<NoSeal>();
  return std::make_unique<ChecksumSeal>();
}

}  // namespace ciranda

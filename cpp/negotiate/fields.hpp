// FieldWriter and FieldReader: the numbers, texts and lists that messages are made of, as bytes; little endian.
//
// The reader trusts nothing: every length is checked against what is there before memory is asked for. What does not
// fit is no error at once: it stays failed, which is to be asked in the end. One thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace ciranda {

static_assert(std::endian::native == std::endian::little, "frames are written in the memory order of the host");

class FieldWriter {
 public:
  explicit FieldWriter(std::vector<std::byte>& out) : out_(out) {}

  template <typename T>
  void number(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t at = out_.size();
    out_.resize(at + sizeof value);
    std::memcpy(out_.data() + at, &value, sizeof value);
  }
  void flag(bool value) { number<std::uint8_t>(value ? 1 : 0); }
  void text(const std::string& value) {
    number(static_cast<std::uint32_t>(value.size()));
    const auto* data = reinterpret_cast<const std::byte*>(value.data());
    out_.insert(out_.end(), data, data + value.size());
  }
  void bytes(const std::vector<std::byte>& value) {
    number(static_cast<std::uint32_t>(value.size()));
    out_.insert(out_.end(), value.begin(), value.end());
  }
  template <typename T>
  void numbers(const std::vector<T>& values) {
    number(static_cast<std::uint32_t>(values.size()));
    for (const T value : values) number(value);
  }

 private:
  std::vector<std::byte>& out_;
};

// Reads until something does not fit; then it stays failed and gives zeros.
class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }
  void fail() { ok_ = false; }

  template <typename T>
  T number() {
    T value{};
    if (!take(sizeof value)) return value;
    std::memcpy(&value, taken_.data(), sizeof value);
    return value;
  }
  bool flag() {
    const auto value = number<std::uint8_t>();
    if (value > 1) fail();
    return value == 1;
  }
  std::string text(std::size_t at_most) {
    const auto size = number<std::uint32_t>();
    if (size > at_most || !take(size)) {
      fail();
      return {};
    }
    return {reinterpret_cast<const char*>(taken_.data()), size};
  }
  std::vector<std::byte> bytes() {
    if (!take(number<std::uint32_t>())) return {};
    return {taken_.begin(), taken_.end()};
  }
  // A list's length, no larger than what the rest of the frame can hold.
  std::uint32_t length(std::size_t item_bytes) {
    const auto n = number<std::uint32_t>();
    if (n > rest_.size() / item_bytes) {
      fail();
      return 0;
    }
    return n;
  }
  template <typename T>
  std::vector<T> numbers() {
    std::vector<T> values(length(sizeof(T)));
    for (T& value : values) value = number<T>();
    return values;
  }
  // A list of items that are larger in memory than on the wire: it grows as they are read, so that a frame of rubbish
  // costs no memory.
  template <typename T, typename ReadItem>
  void list(std::vector<T>& items, std::size_t least_item_bytes, ReadItem read_item) {
    const auto n = length(least_item_bytes);
    for (std::uint32_t i = 0; i < n && ok_; ++i) read_item(items.emplace_back());
  }
  template <typename T>
  T value_or_fail(std::optional<T> value, T otherwise) {
    if (!value) fail();
    return value.value_or(otherwise);
  }

 private:
  bool take(std::size_t n_bytes) {
    if (!ok_ || n_bytes > rest_.size()) {
      ok_ = false;
      return false;
    }
    taken_ = rest_.first(n_bytes);
    rest_ = rest_.subspan(n_bytes);
    return true;
  }

  std::span<const std::byte> rest_;
  std::span<const std::byte> taken_;
  bool ok_ = true;
};

}  // namespace ciranda

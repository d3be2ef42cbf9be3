// ByteWriter and ByteReader: encode values to bytes and back, little endian. One function lists the fields of a message
// in order, for both directions:
//
//   void code(auto& io, Is<Point> auto& m) { io(m.x, m.y); }
//
// It is defined in the namespace of Point, or in this one for types of this namespace. Flags and enums are a byte;
// texts, bytes and lists follow their length (32 bits), an optional its flag, a variant its index (a byte). For an
// enum, is_one(value) returns whether the value is a member.
//
// Threads: plain values. Failure: a reader trusts no input. It checks every length against the remaining bytes before
// it allocates memory. After the first invalid field it reads zeros; check is_complete() at the end.
//
// Called by agree/codec.cc, Handshake, bootstrap_messages.hpp and store_messages.hpp; pure.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/status.hpp"

namespace ciranda {

static_assert(std::endian::native == std::endian::little, "messages are written in the memory order of the host");

template <typename T, typename Wanted>
concept Is = std::same_as<std::remove_const_t<T>, Wanted>;

inline constexpr std::size_t kAnyLength = std::numeric_limits<std::size_t>::max();

class ByteWriter {
 public:
  // Appends to `out`. Texts are cut to most_text_bytes, which a reader accepts at most.
  explicit ByteWriter(std::vector<std::byte>& out, std::size_t most_text_bytes = kAnyLength)
      : out_(out), most_text_bytes_(most_text_bytes) {}

  void operator()(const auto&... values) { (write(values), ...); }
  // A text without the limit.
  void whole(const std::string& text) { chars(std::as_bytes(std::span(text))); }
  // Bytes without their length.
  void raw(std::span<const std::byte> bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  void require(bool /*is_so*/) {}
  void set(const auto& /*field*/, auto /*value*/) {}

 private:
  template <typename T>
  void write(const T& value) {
    if constexpr (std::same_as<T, bool> || std::is_enum_v<T>) {
      number(static_cast<std::uint8_t>(value));
    } else if constexpr (std::is_arithmetic_v<T>) {
      number(value);
    } else if constexpr (!std::is_empty_v<T>) {
      code(*this, value);
    }
  }
  void write(const std::string& value) {
    chars(std::as_bytes(std::span(std::string_view(value).substr(0, most_text_bytes_))));
  }
  template <std::size_t kBytes>
  void write(const std::array<std::byte, kBytes>& value) {
    raw(value);
  }
  void write(const std::span<const std::byte>& value) { chars(value); }
  template <typename T>
  void write(const std::span<const T>& values) {
    number(static_cast<std::uint32_t>(values.size()));
    for (const T& value : values) write(value);
  }
  template <typename T>
  void write(const std::vector<T>& values) {
    write(std::span<const T>(values));
  }
  template <typename T>
  void write(const std::optional<T>& value) {
    write(value.has_value());
    if (value) write(*value);
  }
  template <typename... Alternatives>
  void write(const std::variant<Alternatives...>& value) {
    number(static_cast<std::uint8_t>(value.index()));
    std::visit([this](const auto& alternative) { this->write(alternative); }, value);
  }

  template <typename T>
  void number(T value) {
    const std::size_t at = out_.size();
    out_.resize(at + sizeof value);
    std::memcpy(out_.data() + at, &value, sizeof value);
  }
  void chars(std::span<const std::byte> bytes) {
    number(static_cast<std::uint32_t>(bytes.size()));
    raw(bytes);
  }

  std::vector<std::byte>& out_;
  std::size_t most_text_bytes_;
};

inline bool is_one(ErrorKind value) { return value > ErrorKind::kOk && value <= ErrorKind::kInternal; }

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes, std::size_t most_text_bytes = kAnyLength)
      : rest_(bytes), most_text_bytes_(most_text_bytes) {}

  // True if all fields were valid, and no bytes are left.
  bool is_complete() const { return ok_ && rest_.empty(); }
  void operator()(auto&... values) { (read(values), ...); }
  void whole(std::string& text) { chars(text); }
  void require(bool is_so) {
    if (!is_so) ok_ = false;
  }
  template <typename T>
  void set(T& field, T value) {
    field = value;
  }

 private:
  template <typename T>
  void read(T& value) {
    if constexpr (std::same_as<T, bool>) {
      const auto byte = number<std::uint8_t>();
      require(byte <= 1);
      value = byte == 1;
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(number<std::uint8_t>());
      require(is_one(value));
    } else if constexpr (std::is_arithmetic_v<T>) {
      value = number<T>();
    } else if constexpr (!std::is_empty_v<T>) {
      code(*this, value);
    }
  }
  void read(std::string& value) { chars(value, most_text_bytes_); }
  void read(std::vector<std::byte>& value) { chars(value); }
  template <std::size_t kBytes>
  void read(std::array<std::byte, kBytes>& value) {
    if (take(kBytes)) std::copy(taken_.begin(), taken_.end(), value.begin());
  }
  // Items may be larger in memory than on the wire. So a list grows as items are read, and an invalid frame costs no
  // memory.
  template <typename T>
  void read(std::vector<T>& values) {
    const auto n = number<std::uint32_t>();
    require(n <= rest_.size() / (std::is_arithmetic_v<T> ? sizeof(T) : 1));
    if (ok_) values.reserve(std::is_arithmetic_v<T> ? n : std::min(n, 8U));
    for (std::uint32_t i = 0; i < n && ok_; ++i) read(values.emplace_back());
  }
  template <typename T>
  void read(std::optional<T>& value) {
    bool has_value = false;
    read(has_value);
    if (has_value) read(value.emplace());
  }
  template <typename... Alternatives>
  void read(std::variant<Alternatives...>& value) {
    read_alternative(number<std::uint8_t>(), value);
  }
  template <std::size_t kIndex = 0, typename Variant>
  void read_alternative(std::size_t index, Variant& value) {
    if constexpr (kIndex == std::variant_size_v<Variant>) {
      ok_ = false;
    } else if (index == kIndex) {
      read(value.template emplace<kIndex>());
    } else {
      read_alternative<kIndex + 1>(index, value);
    }
  }

  template <typename T>
  T number() {
    T value{};
    if (take(sizeof value)) std::memcpy(&value, taken_.data(), sizeof value);
    return value;
  }
  template <typename Chars>
  void chars(Chars& value, std::size_t most_bytes = kAnyLength) {
    const std::size_t n_bytes = number<std::uint32_t>();
    require(n_bytes <= most_bytes);
    if (!take(n_bytes)) return;
    const auto* data = reinterpret_cast<const typename Chars::value_type*>(taken_.data());
    value.assign(data, data + taken_.size());
  }
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
  std::size_t most_text_bytes_;
  bool ok_ = true;
};

}  // namespace ciranda

// What the kernels need of a GPU (cpp/backend/cuda/kernels/on_gpu.inc), for a host's compiler: a thread of a kernel is
// a call of its function.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/half.hpp"

#if defined(__clang__)
#define CIRANDA_UNROLL
#else
#define CIRANDA_UNROLL _Pragma("GCC unroll 16")
#endif
#define CIRANDA_NOT_UNROLLED
#define CIRANDA_NOT_INLINED

namespace ciranda::cuda {

__extension__ using Wide = __int128;
__extension__ using UnsignedWide = unsigned __int128;

struct Thread {
  std::uint32_t block;
  std::uint32_t n_blocks;
  std::uint32_t index;  // in the block
  std::uint32_t n_threads;
};

struct alignas(16) Vector {
  std::uint32_t words[4];
};

inline std::uint32_t opaque(std::uint32_t value) { return value; }

inline std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
inline std::uint64_t bits_of(double value) { return std::bit_cast<std::uint64_t>(value); }
inline float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline double double_of(std::uint64_t bits) { return std::bit_cast<double>(bits); }
inline std::uint32_t leading_zeros(std::uint64_t value) { return static_cast<std::uint32_t>(std::countl_zero(value)); }

inline float float_from_float16(std::uint16_t value) { return kernels::float_from_float16(value); }
inline std::uint16_t float16_from_float(float value) { return kernels::float16_from_float(value); }

// As the instructions of a GPU, these fail where the address is not aligned.
void require_aligned(const void* address, std::size_t n_bytes);

template <class T>
T load_aligned(const std::uint8_t* from) {
  require_aligned(from, sizeof(T));
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <class T>
void store_aligned(std::uint8_t* to, T value) {
  require_aligned(to, sizeof(T));
  std::memcpy(to, &value, sizeof(T));
}

inline Vector load_vector(const std::uint8_t* from) { return load_aligned<Vector>(from); }
inline void store_vector(std::uint8_t* to, const Vector& vector) { store_aligned(to, vector); }

inline std::uint32_t shifted_word(std::uint32_t low, std::uint32_t high, std::uint32_t n_bits) {
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(high) << 32 | low) >> n_bits);
}

inline void add_to_total(std::uint64_t* total, std::uint64_t value) { *total += value; }

}  // namespace ciranda::cuda

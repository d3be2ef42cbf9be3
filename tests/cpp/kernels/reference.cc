#include "kernels/reference.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <type_traits>

#include "kernels/exact_scaling.hpp"

namespace ciranda::kernels::testing {
namespace {

int bias(const SmallFloat& format) { return (1 << (format.n_exponent_bits - 1)) - 1; }

template <class T>
T element(const Bytes& bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void set_element(Bytes& bytes, std::size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

// Left-complete tree over x[begin, end): the left part is the largest power of two that leaves something to the right.
template <class T, class Combine>
T tree(const std::vector<T>& x, std::size_t begin, std::size_t end, const Combine& combine) {
  if (end - begin == 1) return x[begin];
  const std::size_t left = std::bit_floor(end - begin - 1);
  return combine(tree(x, begin, begin + left, combine), tree(x, begin + left, end, combine));
}

template <class T>
T combine_floats(ReduceOp op, T a, T b) {
  if (op == ReduceOp::kProduct) return a * b;
  if (op != ReduceOp::kMin && op != ReduceOp::kMax) return a + b;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  const bool a_is_less = a < b || (a == b && std::signbit(a));
  return a_is_less == (op == ReduceOp::kMin) ? a : b;
}

template <class T>
void scale_inputs(const Reduction& reduction, std::vector<T>& x) {
  for (std::size_t k = 0; k < x.size(); ++k) {
    const double factor = reduction.weights.empty() ? reduction.prescale : reduction.prescale * reduction.weights[k];
    if (factor != 1.0) x[k] *= static_cast<T>(factor);
  }
}

template <class T>
T scaled_result(const Reduction& reduction, T result) {
  if (reduction.op == ReduceOp::kAverage) result /= static_cast<T>(reduction.n_average);
  if (reduction.postscale != 1.0) result *= static_cast<T>(reduction.postscale);
  return std::isnan(result) ? std::numeric_limits<T>::quiet_NaN() : result;
}

template <class T>
T reduce_floats(const Reduction& reduction, std::vector<T> x) {
  scale_inputs(reduction, x);
  return scaled_result(reduction, tree(x, 0, x.size(), [&](T a, T b) { return combine_floats(reduction.op, a, b); }));
}

template <class T>
struct Complex {
  T real, imaginary;
};

template <class T>
Complex<T> reduce_complex(const Reduction& reduction, const std::vector<Complex<T>>& x) {
  std::vector<T> real, imaginary;
  for (const Complex<T>& value : x) {
    real.push_back(value.real);
    imaginary.push_back(value.imaginary);
  }
  if (reduction.op != ReduceOp::kProduct) return {reduce_floats(reduction, real), reduce_floats(reduction, imaginary)};
  scale_inputs(reduction, real);
  scale_inputs(reduction, imaginary);
  std::vector<Complex<T>> scaled;
  for (std::size_t k = 0; k < x.size(); ++k) scaled.push_back({real[k], imaginary[k]});
  const Complex<T> product = tree(scaled, 0, scaled.size(), [](const Complex<T>& a, const Complex<T>& b) {
    const T rr = a.real * b.real, ii = a.imaginary * b.imaginary;
    const T ri = a.real * b.imaginary, ir = a.imaginary * b.real;
    return Complex<T>{rr - ii, ri + ir};
  });
  return {scaled_result(reduction, product.real), scaled_result(reduction, product.imaginary)};
}

template <class T>
T scaled_to(Int128 value, double factor, int divisor) {
  using Limits = std::numeric_limits<T>;
  const Int128 result = scaled(value, factor, static_cast<std::uint32_t>(divisor));
  return static_cast<T>(std::clamp<Int128>(result, Limits::min(), Limits::max()));
}

Int128 combine_integers(ReduceOp op, Int128 a, Int128 b) {
  switch (op) {
    case ReduceOp::kMin: return std::min(a, b);
    case ReduceOp::kMax: return std::max(a, b);
    case ReduceOp::kProduct: return static_cast<Int128>(static_cast<UInt128>(a) * static_cast<UInt128>(b));
    case ReduceOp::kBitwiseAnd: return a & b;
    case ReduceOp::kBitwiseOr: return a | b;
    case ReduceOp::kBitwiseXor: return a ^ b;
    default: return a + b;
  }
}

template <class T>
T reduce_integers(const Reduction& reduction, std::vector<T> x) {
  if (reduction.prescale != 1.0) {
    for (T& value : x) value = scaled_to<T>(value, reduction.prescale, 1);
  }
  Int128 total = x[0];
  for (std::size_t k = 1; k < x.size(); ++k) total = combine_integers(reduction.op, total, x[k]);
  if (reduction.op == ReduceOp::kAverage) {
    if (reduction.postscale == 1.0) return static_cast<T>(total / reduction.n_average);
    return scaled_to<T>(total, reduction.postscale, reduction.n_average);
  }
  const auto value = static_cast<T>(total);
  return reduction.postscale == 1.0 ? value : scaled_to<T>(value, reduction.postscale, 1);
}

template <class T>
Bytes expected_of(const std::vector<Bytes>& inputs, std::size_t count,
                  const std::function<T(std::vector<T>)>& reduce_element) {
  Bytes out(count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<T> x;
    for (const Bytes& input : inputs) x.push_back(element<T>(input, i));
    set_element(out, i, reduce_element(std::move(x)));
  }
  return out;
}

template <class T>
Bytes expected_integers(const Reduction& reduction, const std::vector<Bytes>& inputs, std::size_t count) {
  return expected_of<T>(inputs, count, [&](std::vector<T> x) { return reduce_integers(reduction, std::move(x)); });
}

template <class T>
Bytes expected_floats(const Reduction& reduction, const std::vector<Bytes>& inputs, std::size_t count) {
  return expected_of<T>(inputs, count, [&](std::vector<T> x) { return reduce_floats(reduction, std::move(x)); });
}

template <class T>
Bytes expected_complex(const Reduction& reduction, const std::vector<Bytes>& inputs, std::size_t count) {
  using Element = Complex<T>;
  return expected_of<Element>(inputs, count,
                              [&](const std::vector<Element>& x) { return reduce_complex(reduction, x); });
}

Bytes expected_small_floats(const SmallFloat& format, const Reduction& reduction, const std::vector<Bytes>& inputs,
                            std::size_t count) {
  return expected_of<std::uint16_t>(inputs, count, [&](const std::vector<std::uint16_t>& x) {
    std::vector<float> floats;
    for (const std::uint16_t bits : x) floats.push_back(static_cast<float>(widened(format, bits)));
    return rounded(format, reduce_floats(reduction, std::move(floats)));
  });
}

Bytes expected_bools(const Reduction& reduction, const std::vector<Bytes>& inputs, std::size_t count) {
  return expected_of<std::uint8_t>(inputs, count, [&](const std::vector<std::uint8_t>& x) {
    std::size_t n_true = 0;
    for (const std::uint8_t value : x) n_true += value != 0 ? 1 : 0;
    switch (reduction.op) {
      case ReduceOp::kMin:
      case ReduceOp::kLogicalAnd: return static_cast<std::uint8_t>(n_true == x.size());
      case ReduceOp::kLogicalXor: return static_cast<std::uint8_t>(n_true % 2);
      default: return static_cast<std::uint8_t>(n_true > 0);
    }
  });
}

// The operator alone, applied to one input, is a copy. Factors do not apply to bool.
bool is_copy(const Reduction& reduction, std::size_t n) {
  if (reduction.dtype == DataType::kBool) return n == 1;
  return n == 1 && reduction.weights.empty() && reduction.prescale == 1.0 && reduction.postscale == 1.0 &&
         (reduction.op != ReduceOp::kAverage || reduction.n_average == 1);
}

template <class T>
T small_number(std::mt19937_64& random) {
  const auto integer = static_cast<int>(random() % 201) - (std::is_unsigned_v<T> ? 0 : 100);
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(integer) * static_cast<T>(0.37);
  return static_cast<T>(integer);
}

std::uint64_t special_bits(DataType dtype, std::mt19937_64& random) {
  static constexpr double kDoubles[] = {0.0, -0.0, INFINITY, -INFINITY, 1e300, -5e-324, 1.0, -1.0};
  static constexpr float kFloats[] = {0.0F, -0.0F, INFINITY, -INFINITY, 3e38F, -1e-45F, 1.0F, -1.0F};
  const std::size_t pick = random() % 9;
  const bool negative = (random() & 1) != 0;
  switch (dtype) {
    case DataType::kFloat64:
      if (pick == 8) return negative ? 0xFFF0000000000001 : 0x7FFC000000000123;
      return std::bit_cast<std::uint64_t>(kDoubles[pick]);
    case DataType::kFloat32:
      if (pick == 8) return negative ? 0xFF800001 : 0x7FC00123;
      return std::bit_cast<std::uint32_t>(kFloats[pick]);
    case DataType::kFloat16:
      if (pick == 8) return negative ? 0xFC01 : 0x7E21;
      return rounded(kFloat16, kFloats[pick]);
    case DataType::kBFloat16:
      if (pick == 8) return negative ? 0xFF81 : 0x7FE1;
      return rounded(kBFloat16, kFloats[pick]);
    default: {
      const std::size_t n_bits = size_of(dtype) * 8;
      const std::uint64_t top = std::uint64_t{1} << (n_bits - 1);
      const std::uint64_t values[] = {0, 1, ~std::uint64_t{0}, top, top - 1};
      return values[pick % 5];
    }
  }
}

std::uint64_t small_bits(DataType dtype, std::mt19937_64& random) {
  switch (dtype) {
    case DataType::kBool: return random() & 1;
    case DataType::kFloat64: return std::bit_cast<std::uint64_t>(small_number<double>(random));
    case DataType::kFloat32: return std::bit_cast<std::uint32_t>(small_number<float>(random));
    case DataType::kFloat16: return rounded(kFloat16, small_number<float>(random));
    case DataType::kBFloat16: return rounded(kBFloat16, small_number<float>(random));
    default:
      if (info(dtype).type_class == TypeClass::kUnsigned) return small_number<std::uint64_t>(random);
      return static_cast<std::uint64_t>(small_number<std::int64_t>(random));
  }
}

}  // namespace

double widened(const SmallFloat& format, std::uint16_t bits) {
  const int mantissa = bits & ((1 << format.n_mantissa_bits) - 1);
  const int exponent = (bits >> format.n_mantissa_bits) & ((1 << format.n_exponent_bits) - 1);
  const int hidden = exponent == 0 ? 0 : 1 << format.n_mantissa_bits;
  double value = std::ldexp(mantissa + hidden, std::max(exponent, 1) - bias(format) - format.n_mantissa_bits);
  if (exponent == (1 << format.n_exponent_bits) - 1) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

std::uint16_t infinity(const SmallFloat& format) {
  return static_cast<std::uint16_t>(((1 << format.n_exponent_bits) - 1) << format.n_mantissa_bits);
}

std::uint16_t canonical_nan(const SmallFloat& format) {
  return static_cast<std::uint16_t>(infinity(format) | (1 << (format.n_mantissa_bits - 1)));
}

// In units of the last place at the value's exponent, nearbyint is the rounding to nearest even; the bits of the format
// read as an integer count those units, so that a carry into the next exponent needs no care.
std::uint16_t rounded(const SmallFloat& format, float value) {
  if (std::isnan(value)) return canonical_nan(format);
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | infinity(format));
  const int smallest = 1 - bias(format);
  const int exponent = magnitude == 0 ? smallest : std::max(std::ilogb(magnitude), smallest);
  const double units = std::nearbyint(std::ldexp(magnitude, format.n_mantissa_bits - exponent));
  const double bits = units + std::ldexp(exponent - smallest, format.n_mantissa_bits);
  if (bits >= infinity(format)) return static_cast<std::uint16_t>(sign | infinity(format));
  return static_cast<std::uint16_t>(sign | static_cast<int>(bits));
}

std::vector<Bytes> make_inputs(DataType dtype, std::size_t n, std::size_t count, std::uint64_t seed) {
  if (dtype == DataType::kComplex64) return make_inputs(DataType::kFloat32, n, count * 2, seed);
  if (dtype == DataType::kComplex128) return make_inputs(DataType::kFloat64, n, count * 2, seed);
  std::mt19937_64 random(seed * 1000 + n);
  const std::size_t n_bytes = size_of(dtype);
  std::vector<Bytes> inputs(n, Bytes(count * n_bytes));
  for (Bytes& input : inputs) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t kind = (i / 8) % 4;
      std::uint64_t bits = small_bits(dtype, random);
      if (kind == 2) bits = random();
      if (kind == 3 && random() % 2 == 0) bits = special_bits(dtype, random);
      std::memcpy(input.data() + i * n_bytes, &bits, n_bytes);  // little endian: the low bytes
    }
  }
  return inputs;
}

Bytes expected(const Reduction& reduction, const std::vector<Bytes>& inputs, std::size_t count) {
  const std::size_t n_bytes = count * size_of(reduction.dtype);
  if (is_copy(reduction, inputs.size())) return {inputs[0].begin(), inputs[0].begin() + static_cast<long>(n_bytes)};
  switch (reduction.dtype) {
    case DataType::kBool: return expected_bools(reduction, inputs, count);
    case DataType::kUInt8: return expected_integers<std::uint8_t>(reduction, inputs, count);
    case DataType::kUInt16: return expected_integers<std::uint16_t>(reduction, inputs, count);
    case DataType::kUInt32: return expected_integers<std::uint32_t>(reduction, inputs, count);
    case DataType::kUInt64: return expected_integers<std::uint64_t>(reduction, inputs, count);
    case DataType::kInt8: return expected_integers<std::int8_t>(reduction, inputs, count);
    case DataType::kInt16: return expected_integers<std::int16_t>(reduction, inputs, count);
    case DataType::kInt32: return expected_integers<std::int32_t>(reduction, inputs, count);
    case DataType::kInt64: return expected_integers<std::int64_t>(reduction, inputs, count);
    case DataType::kFloat16: return expected_small_floats(kFloat16, reduction, inputs, count);
    case DataType::kBFloat16: return expected_small_floats(kBFloat16, reduction, inputs, count);
    case DataType::kFloat32: return expected_floats<float>(reduction, inputs, count);
    case DataType::kFloat64: return expected_floats<double>(reduction, inputs, count);
    case DataType::kComplex64: return expected_complex<float>(reduction, inputs, count);
    case DataType::kComplex128: return expected_complex<double>(reduction, inputs, count);
  }
  return {};
}

std::vector<SimdLevel> levels() {
  std::vector<SimdLevel> result;
  for (const SimdLevel level : {SimdLevel::kBaseline, SimdLevel::kAvx2, SimdLevel::kAvx512}) {
    if (level <= best_simd_level()) result.push_back(level);
  }
  return result;
}

std::string describe(const Reduction& reduction, std::size_t n) {
  return std::string(to_string(reduction.op)) + " " + std::string(to_string(reduction.dtype)) +
         " n=" + std::to_string(n) + " prescale=" + std::to_string(reduction.prescale) +
         " postscale=" + std::to_string(reduction.postscale) + " n_average=" + std::to_string(reduction.n_average);
}

}  // namespace ciranda::kernels::testing

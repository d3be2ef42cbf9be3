#include "bindings/jax/parameters.hpp"

#include <cstring>
#include <string_view>

namespace ciranda::jax {

namespace {

template <typename T>
constexpr std::int32_t kDtypeOf = 0;
template <>
constexpr std::int32_t kDtypeOf<std::int32_t> = ffi::kS32;
template <>
constexpr std::int32_t kDtypeOf<std::int64_t> = ffi::kS64;
template <>
constexpr std::int32_t kDtypeOf<double> = ffi::kF64;

class Reader {
 public:
  explicit Reader(const ffi::Attributes& attributes) : attributes_(attributes) {}

  template <typename T>
  void number(std::string_view name, T* value) {
    const auto* scalar = static_cast<const ffi::Scalar*>(find(name, ffi::kScalar));
    if (scalar != nullptr && scalar->dtype == kDtypeOf<T>) {
      std::memcpy(value, scalar->value, sizeof(T));
    } else {
      note(name);
    }
  }

  void text(std::string_view name, std::string* value) {
    const auto* span = static_cast<const ffi::Span*>(find(name, ffi::kString));
    if (span != nullptr) {
      value->assign(span->data, span->size);
    } else {
      note(name);
    }
  }

  std::string problem() const { return problem_; }

 private:
  const void* find(std::string_view name, std::int32_t kind) const {
    for (std::int64_t i = 0; i < attributes_.size; ++i) {
      const ffi::Span& each = *attributes_.names[i];
      if (attributes_.kinds[i] == kind && std::string_view(each.data, each.size) == name) return attributes_.items[i];
    }
    return nullptr;
  }

  void note(std::string_view name) {
    problem_ = "the custom call has no attribute " + std::string(name) + " of the type that it should have";
  }

  const ffi::Attributes& attributes_;
  std::string problem_;
};

}  // namespace

std::string read(const ffi::Attributes& attributes, Parameters* parameters) {
  Reader reader(attributes);
  reader.text("name", &parameters->name);
  reader.text("program", &parameters->program);
  reader.number("collective", &parameters->collective);
  reader.number("op", &parameters->op);
  reader.number("root", &parameters->root);
  reader.number("lane", &parameters->lane);
  reader.number("flags", &parameters->flags);
  reader.number("n_ranks", &parameters->n_ranks);
  reader.number("process_set", &parameters->process_set);
  reader.number("prescale", &parameters->prescale);
  reader.number("postscale", &parameters->postscale);
  return reader.problem();
}

}  // namespace ciranda::jax

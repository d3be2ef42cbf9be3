#include "crypto/key_agreement.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <cstring>
#include <optional>
#include <stdexcept>

#include "bindings/python/bindings.hpp"

namespace ciranda::python {

namespace nb = nanobind;

namespace {

CurveKey key_from(const nb::bytes& bytes) {
  CurveKey key{};
  if (bytes.size() != key.size()) throw std::invalid_argument("a key of X25519 has 32 bytes");
  std::memcpy(key.data(), bytes.c_str(), key.size());
  return key;
}

nb::bytes bytes_of(const CurveKey& key) { return nb::bytes(reinterpret_cast<const char*>(key.data()), key.size()); }

class KeyAgreement {
 public:
  explicit KeyAgreement(const std::optional<nb::bytes>& private_key)
      : private_key_(private_key ? key_from(*private_key) : new_private_key()) {}

  nb::bytes public_key() const { return bytes_of(public_key_of(private_key_)); }
  nb::bytes agreed(const nb::bytes& public_key_of_other) const {
    return bytes_of(agreed_key(private_key_, key_from(public_key_of_other)));
  }

 private:
  CurveKey private_key_;
};

}  // namespace

void bind_key_agreement(nb::module_& m) {
  nb::class_<KeyAgreement>(m, "KeyAgreement", "Agrees on a secret by X25519.")
      .def(nb::init<std::optional<nb::bytes>>(), nb::arg("private_key") = nb::none())
      .def_prop_ro("public_key", &KeyAgreement::public_key)
      .def("agreed", &KeyAgreement::agreed, nb::arg("public_key_of_other"));
}

}  // namespace ciranda::python

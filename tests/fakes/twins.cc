#include "twins.hpp"

namespace ciranda::fakes {

const Twin* find_twin(std::string_view) { return nullptr; }

void set_translation(std::byte* (*)(const void*)) {}

}  // namespace ciranda::fakes

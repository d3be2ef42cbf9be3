// append_json_string(): any bytes as a string of JSON. What is no UTF-8 becomes U+FFFD.
#pragma once

#include <string>
#include <string_view>

namespace ciranda {

void append_json_string(std::string_view text, std::string& to);

}  // namespace ciranda

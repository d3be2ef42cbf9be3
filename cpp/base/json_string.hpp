// append_json_string: any bytes as a string of JSON.
// Called by log_line.cc and TraceFormat; pure.
#pragma once

#include <string>
#include <string_view>

namespace ciranda {

// In quotation marks. Bytes that are not valid UTF-8 become U+FFFD.
void append_json_string(std::string_view text, std::string& to);

}  // namespace ciranda
